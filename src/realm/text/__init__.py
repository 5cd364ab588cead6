"""Text as strings: canonical text, the tokenizer, sentences, languages. Nothing here knows documents, blocks or models."""

from typing import TYPE_CHECKING, Any

import regex

if TYPE_CHECKING:
    deferred = regex.compile
else:

    class deferred:  # stands for a function
        """A pattern that is compiled when it is first used: long ones take longer than an answer, and many a start needs none."""

        def __init__(self, *given: Any, **lists: Any):
            self._given, self._lists = given, lists

        def __getattr__(self, name: str) -> Any:
            self.__dict__[name] = getattr(regex.compile(*self._given, **self._lists), name)
            return self.__dict__[name]
