"""Goes into the bundle; SGLang imports it first. What it imports and never needs here is absent, and may be."""

import importlib.abc
import importlib.machinery
import sys
import types

# Structured output is off (grammar_backend none), its types are named all the same.
ABSENT = ("xgrammar",)


class AbsentModule(types.ModuleType):
    """Every name in it is a class that cannot be constructed."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_, **__):
            raise RuntimeError(f"{self.__name__} is not in the bundle")

        def any_schema(*_):
            # Some are fields of pydantic models.
            from pydantic_core import core_schema

            return core_schema.any_schema()

        made = type(name, (), {"__init__": refuse, "__get_pydantic_core_schema__": classmethod(any_schema)})
        setattr(self, name, made)
        return made


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return AbsentModule(spec.name)

    def exec_module(self, module):
        pass


def let_registrations_repeat():
    """SGLang registers models with transformers that a newer transformers has already, which refuses."""
    from transformers.models.auto import auto_factory, configuration_auto

    for mapping in (configuration_auto._LazyConfigMapping, auto_factory._LazyAutoMapping):

        def register(self, key, value, exist_ok=False, original=mapping.register):
            return original(self, key, value, exist_ok=True)

        mapping.register = register


sys.meta_path.append(AbsentModules())
let_registrations_repeat()
