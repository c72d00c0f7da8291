"""How the guards of pages against hostile text may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

ASKED = "tests/sessions_app/web/test_answers.py::"
ANSWERS = "tests/injection/test_answers.py::"
PAGES_OF_ALL = "tests/injection/test_pages.py::test_no_page_takes_a_text_for_html_and_each_text_is_shown"
SANITIZER = "tests/injection/test_sanitizer.py::"
HEADERS = "tests/injection/test_headers.py::test_each_address_has_a_policy_and_a_type_that_is_kept"
NEXT = "tests/injection/test_redirects.py::test_no_way_in_or_out_leads_to_another_site"

PAGES = (
    Break(
        rule="10.5",
        how="the parser of answers passes HTML on",
        file="sessions_app/web/rendering.py",
        old='{"html": False, "breaks": True, "highlight"',
        new='{"html": True, "breaks": True, "highlight"',
        tests=(SANITIZER + "test_the_parser_makes_no_tag_of_html_in_a_text",),
    ),
    Break(
        rule="10.5",
        how="an answer may hold a form",
        file="sessions_app/web/rendering.py",
        old='        "span",\n        "div",',
        new='        "span",\n        "form",\n        "div",',
        tests=(SANITIZER + "test_the_sanitiser_keeps_no_more_than_markdown_can_make",),
    ),
    Break(
        rule="10.5",
        how="an answer may link to a script",
        file="sessions_app/web/rendering.py",
        old='{"http", "https", "mailto"}',
        new='{"http", "https", "mailto", "javascript"}',
        tests=(SANITIZER + "test_the_sanitiser_keeps_no_more_than_markdown_can_make",),
    ),
    Break(
        rule="10.5",
        how="an answer may hold attributes of htmx",
        file="sessions_app/web/rendering.py",
        old='"span": {"class"}}',
        new='"span": {"class"}, "div": {"hx-get", "hx-trigger"}}',
        tests=(SANITIZER + "test_the_sanitiser_keeps_no_more_than_markdown_can_make",),
    ),
    Break(
        rule="10.5",
        how="the text of a running answer is inserted as HTML",
        file="sessions_app/static/rondo/growing.js",
        old="textContent: rest.slice(known.source.length)",
        new="innerHTML: rest.slice(known.source.length)",
        tests=(ANSWERS + "test_an_answer_is_text_while_it_is_written_and_afterwards",),
    ),
    Break(
        rule="10.5",
        how="the result of a tool is shown as HTML",
        file="templates/web/parts/calls.html",
        old="<pre>{{ call.output }}</pre>",
        new="<pre>{{ call.output|safe }}</pre>",
        tests=(ANSWERS + "test_a_tool_call_is_text_with_its_name_arguments_and_result",),
    ),
    Break(
        rule="10.5",
        how="a question for consent shows the names of arguments as HTML",
        file="templates/web/parts/question.html",
        old="<dt>{{ name }}</dt>",
        new="<dt>{{ name|safe }}</dt>",
        tests=(ANSWERS + "test_a_question_for_consent_is_text",),
    ),
    Break(
        rule="3.5",
        how="an argument named items hides the others in a question for consent",
        file="sessions_app/web/chat.py",
        old='list(call["arguments"].items())',
        new='call["arguments"].get("items") or list(call["arguments"].items())',
        tests=(ASKED + "test_a_question_shows_the_real_arguments_whatever_they_are_called",),
    ),
    Break(
        rule="10.5",
        how="the panels of the admin show texts as HTML",
        file="sessions_app/admin/panels.py",
        old="""format_html('<pre class="text-xs" style="{}">{}</pre>', WRAPPED, shown)""",
        new="""mark_safe(f'<pre class="text-xs" style="{WRAPPED}">{shown}</pre>')""",
        tests=(PAGES_OF_ALL,),
    ),
    Break(
        rule="10.5",
        how="the title of a conversation is shown as HTML",
        file="templates/web/parts/listed.html",
        old='<span class="name">{{ each.title }}</span>',
        new='<span class="name">{{ each.title|safe }}</span>',
        tests=(PAGES_OF_ALL,),
    ),
    Break(
        rule="10.5",
        how="pages allow scripts within them",
        file="config/http/headers.py",
        old="PAGES = f\"{_OF_SITE}; script-src 'self'; ",
        new="PAGES = f\"{_OF_SITE}; script-src 'self' 'unsafe-inline'; ",
        tests=(HEADERS,),
    ),
    Break(
        rule="10.5",
        how="forms may be sent elsewhere",
        file="config/http/headers.py",
        old="form-action 'self'; ",
        new="",
        tests=(HEADERS,),
    ),
    Break(
        rule="10.5",
        how="signing in leads wherever an address says",
        file="config/accounts/pages.py",
        old="    authentication_form = SignInForm\n",
        new="    authentication_form = SignInForm\n\n    def get_redirect_url(self) -> str:\n"
        '        return self.request.POST.get("next", "")\n',
        tests=(NEXT,),
    ),
)
