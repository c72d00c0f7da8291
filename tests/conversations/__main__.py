"""`make evals`: 24 conversations and 20 phrasings with a real model, judged by their rows. It costs tokens.

RONDO_EVAL_MODEL names the model, such as openai-chat:NAME, whose provider's key is in the environment
(OPENAI_API_KEY, and OPENAI_BASE_URL of a compatible server). `--renew` asks no model: it writes the pages of
requests anew that the test suite compares with. Other arguments are for pytest: -k plan.
"""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_MISSING = (
    "RONDO_EVAL_MODEL is not set; name a model, such as RONDO_EVAL_MODEL=openai-chat:NAME, and give its key"
)


def main(arguments: list[str]) -> int:
    """Run them; the exit code is pytest's, 2 without a model."""
    if "--help" in arguments:
        print(__doc__)
        return 0
    if "--renew" in arguments:
        os.environ["RONDO_RENEW_CONVERSATIONS"] = "1"
        rest = [each for each in arguments if each != "--renew"]
        return int(pytest.main(["-q", str(HERE / "test_conversations.py"), *rest]))
    if not os.environ.get("RONDO_EVAL_MODEL"):
        print(_MISSING, file=sys.stderr)
        return 2
    return int(pytest.main(["-v", "--tb=short", str(HERE / "real_model.py"), *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
