"""Stands for the host's module, whose text the guests have in this place: see `toolexec.runtime.guest.sources`."""

from toolexec.model.json_forms import MAX_INTEGER, json_form, key_text

__all__ = ["MAX_INTEGER", "json_form", "key_text"]
