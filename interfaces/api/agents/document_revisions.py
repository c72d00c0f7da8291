"""Older revisions of documents."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.http.base import ApiView
from interfaces.http.fields import Output
from interfaces.http.scopes import READ
from sessions_app.agents import document_revisions
from sessions_app.reads import selectors


class DocumentRevisionOut(Output):
    revision = serializers.IntegerField()
    characters = serializers.IntegerField()
    replaced_at = serializers.DateTimeField()


class DocumentRevisionsOut(Output):
    next = serializers.CharField(allow_null=True, help_text="Always null: there is one page.")
    previous = serializers.CharField(allow_null=True)
    results = DocumentRevisionOut(many=True)


class OldDocumentOut(DocumentRevisionOut):
    content = serializers.CharField()


class DocumentRevisionList(ApiView):
    scopes = {"get": READ}

    @extend_schema(operation_id="agents_documents_revisions_list", responses=DocumentRevisionsOut)
    def get(self, _request: Request, name: str, document: str) -> Response:
        """The last 20 older revisions, the newest first. To restore one, write its content to the document."""
        found = document_revisions.revisions_of(selectors.document(self.user, name, document))
        return Response(DocumentRevisionsOut({"results": found, "next": None, "previous": None}).data)


class DocumentRevisionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=OldDocumentOut)
    def get(self, _request: Request, name: str, document: str, revision: int) -> Response:
        """An older revision with its content."""
        found = document_revisions.get_revision(selectors.document(self.user, name, document), revision)
        return Response(OldDocumentOut(found).data)
