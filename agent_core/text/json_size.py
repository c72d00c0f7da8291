"""How many values a JSON text may have, counted without reading it."""


def values_at_most(text: str) -> int:
    """The most values that a JSON text can have: each but the first follows a comma or an opening bracket.

    For a text that is not JSON it may be any number.
    """
    without_strings = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    return 1 + sum(without_strings.count(sign) for sign in ",[{")
