"""Texts that would run a script, load something, send a form or change a page if one place took them for HTML.

Each holds `__ran`, so that a page can be searched for attributes and elements that came from one, whether or not the
browser ran it: a policy of the page must not hide that a text was not escaped.
"""

RAN = "__ran"
ELSEWHERE = "out.invalid"
LINES = (
    f"<script>{RAN}=1</script>",
    f'"><svg onload={RAN}=1>',
    f"'><img src=/{RAN} onerror={RAN}=1>",
    f"</textarea></title></script><script>{RAN}=1</script>",
    f'<iframe srcdoc="<script>top.{RAN}=1</script>">',
    f'" autofocus onfocus={RAN}=1 x="',
    f"' onmouseover={RAN}=1 x='",
    f"javascript:{RAN}=1//",
    f"[a](javascript:{RAN}=1) ![b](http://{ELSEWHERE}/{RAN})",
    f"<div hx-get=/{RAN} hx-trigger=load hx-on::load={RAN}=1>",
    f"<b x-data x-init={RAN}=1 @click={RAN}=1>{{{{ 7|add:7 }}}}</b>",
    f"{{% debug %}}${{{RAN}=1}}{{{{ {RAN} }}}}",
    f"<base href=//{ELSEWHERE}/{RAN}>",
    f"<meta http-equiv=refresh content=0;/{RAN}>",
    f"<form action=/{RAN} id=updater><input name=key>",
    f"<style>@import'//{ELSEWHERE}/{RAN}'</style>",
    f"\u2028'-alert({RAN}=1)-'\u2029&quot;",
    f"<a href=data:text/html,<script>{RAN}=1</script>>x</a>",
    f'<http://{ELSEWHERE}/"onclick={RAN}=1>',
    f"<svg><style><img src=x onerror={RAN}=1></style>",
)
BLOCKS = (
    f'```x"onclick={RAN}=1>\n{LINES[0]}\n```',
    f"```html\n{LINES[1]}\n```",
    f"[a]: javascript:{RAN}=1 '\"onclick={RAN}=1 x=\"'\n[a] ![b](data:text/html,{RAN})",
    f"|{LINES[0]}|b|\n|-|-|\n|[x](vbscript:{RAN}=1)|<details open ontoggle={RAN}=1>|",
    f"<div\nonclick={RAN}=1\n>\n\n<a\thref=jav&#x61;script:{RAN}=1>x</a>\n\n[x](JaVaScRiPt&colon;{RAN}=1)",
)


def packed(marker: str, room: int | None, begin: int) -> tuple[str, int]:
    """A text with this marker and as many payloads as fit, beginning with number `begin`. Returns how many it has."""
    text, count = marker, 0
    while count < len(LINES):
        more = f"{text} {LINES[(begin + count) % len(LINES)]}"
        if room is not None and len(more) > room:
            break
        text, count = more, count + 1
    return text, count
