"""Documents of agents and their older revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import ApiView
from interfaces.http.fields import Input, Output, Text
from interfaces.http.headers import etag, revision_expected
from sessions_app.agents import documents as agent_documents
from sessions_app.agents.documents import write_document
from sessions_app.models import Document
from sessions_app.reads import selectors


class DocumentIn(Input):
    example = {"content": "# About me\nI live in Berlin."}
    content = Text(allow_blank=True)


class DocumentOut(Output):
    name = serializers.CharField()
    content = serializers.CharField()
    revision = serializers.IntegerField()


class WrittenOut(DocumentOut):
    parse = serializers.ChoiceField(
        choices=["ok", "corrupted", "empty"],
        required=False,
        help_text="HEARTBEAT.md only: the result of parsing. A corrupted document is stored and changes no routine.",
    )
    problem = serializers.CharField(required=False, help_text="What is wrong with a corrupted document.")


class OnePage(Output):
    next = serializers.CharField(allow_null=True, help_text="Always null: there is one page.")
    previous = serializers.CharField(allow_null=True)


class DocumentsOut(OnePage):
    results = DocumentOut(many=True)


class DocumentRevisionOut(Output):
    revision = serializers.IntegerField()
    characters = serializers.IntegerField()
    replaced_at = serializers.DateTimeField()


class DocumentRevisionsOut(OnePage):
    results = DocumentRevisionOut(many=True)


class OldDocumentOut(DocumentRevisionOut):
    content = serializers.CharField()


class DocumentList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_list", responses=DocumentsOut)
    def get(self, _request: Request, name: str) -> Response:
        """List the agent's documents. One that was never written is empty and has revision 0."""
        found = selectors.documents(self.user, name)
        return Response(DocumentsOut({"results": found, "next": None, "previous": None}).data)


class DocumentDetail(ApiView):
    scopes = {"get": READ, "put": MANAGE}
    refuses = {"put": (409,)}

    @extend_schema(responses=DocumentOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """Get a document. HEARTBEAT.md shows the current routines."""
        found = selectors.document(self.user, name, document)
        return _tagged(found, DocumentOut(found).data)

    @extend_schema(request=DocumentIn, responses=WrittenOut)
    def put(self, _request: Request, name: str, document: str) -> Response:
        """Replace a document; the next turn sees it. HEARTBEAT.md changes the routines that it lists."""
        found = selectors.document(self.user, name, document)
        revision = basis = None
        if found.basis is None:
            revision = revision_expected(self.request, found.revision)
        else:
            basis = revision_expected(self.request, found.basis)
        content = self.read(DocumentIn, of=DocumentOut)["content"]
        taken = write_document(found.agent_id, found.name, content, revision=revision, basis=basis).taken
        now = selectors.document(self.user, name, document)
        parsed = {"parse": taken.parse, "problem": taken.problem} if taken else {}
        shown = DocumentOut(now).data | {name: text for name, text in parsed.items() if text}
        return _tagged(now, WrittenOut(shown).data)


def _tagged(document: Document, data: Mapping[str, Any]) -> Response:
    """The answer with the ETag of a document: its revision, or its basis when it is more than text."""
    tag = etag(document.revision) if document.basis is None else etag(document.basis, document.content)
    return Response(data, headers={"ETag": tag})


class DocumentRevisionList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_revisions_list", responses=DocumentRevisionsOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """List the last 20 older revisions, the newest first. To restore one, write its content to the document."""
        found = agent_documents.revisions_of(selectors.document(self.user, name, document))
        return Response(DocumentRevisionsOut({"results": found, "next": None, "previous": None}).data)


class DocumentRevisionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=OldDocumentOut)
    def get(self, _request: Request, name: str, document: str, revision: int) -> Response:
        """Get an older revision with its content."""
        found = agent_documents.get_revision(selectors.document(self.user, name, document), revision)
        return Response(OldDocumentOut(found).data)
