"""``spec.template`` of a TrainingJob: Kubernetes' own, with checks of the parts that Trimtab starts or extends.

`TEMPLATE_RULES` are those of the API server, `check_template` those of a file: of a file nothing has checked the types
before, and it says which item of a list is wrong. What names of Trimtab's own a cluster takes, one machine leaves free.
"""

from __future__ import annotations

import re
from typing import Any

from trimtab_api.names import RESERVED_VARIABLES
from trimtab_api.trainingjob.fields import Location, invalid_value
from trimtab_api.trainingjob.rule import Rule

#: The container of the pod template that runs the user's command.
TRAINER_CONTAINER = "trainer"

#: Valid names of environment variables, by Kubernetes' rules.
_VARIABLE_NAME = re.compile(r"[ -<>-~]+")
#: Bytes of one argument or variable that Linux gives a process (MAX_ARG_STRLEN), the name of a variable left out.
_LONGEST_WORD = 120_000
_MUST_BE_TEXT = "must be text; put it in quotes"
_NAME_ONE_TRAINER = f"name exactly one container {TRAINER_CONTAINER}; it runs the training command"
_WRITE_A_COMMAND = "write a list of strings, such as [python, train.py]"

_CONTAINERS = "spec.template.spec.containers"
_RESERVED = ", ".join(f"'{variable}'" for variable in RESERVED_VARIABLES)

TEMPLATE_RULES = (
    Rule(
        _CONTAINERS,
        f"self.exists_one(each, each.name == '{TRAINER_CONTAINER}')",
        _NAME_ONE_TRAINER,
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || has(self.command)",
        f"the trainer needs a command: {_WRITE_A_COMMAND}",
        ".command",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || has(self.image)",
        "the trainer needs an image on a cluster: write one that holds trimtab and your script",
        ".image",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || !has(self.env) || self.env.all(each, each.name != '' && !each.name.contains('='))",
        "holds a variable without a name, or with = in it; name each in printable ASCII without =",
        ".env",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        f"self.name != 'trainer' || !has(self.env) || self.env.all(each, !(each.name in [{_RESERVED}]))",
        f"holds a variable that the launcher sets; remove it ({', '.join(RESERVED_VARIABLES)})",
        ".env",
    ),
    Rule(
        "spec.template.spec",
        "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        "is always Never: all ranks restart together; remove it, and set spec.restartPolicy instead",
        ".restartPolicy",
    ),
    Rule("spec.template.spec", "!has(self.hostname)", "is given to each worker; remove it", ".hostname"),
    Rule("spec.template.spec", "!has(self.subdomain)", "is the job's Service; remove it", ".subdomain"),
    *(
        Rule(
            at,
            "self.all(each, each.name != 'netmon')",
            "netmon is the name of the network monitor that every pod is given; choose another",
        )
        for at in ("spec.template.spec.initContainers", _CONTAINERS)
    ),
    Rule(
        "spec.template.spec.volumes",
        "self.all(each, each.name == 'trimtab-run' || !each.name.startsWith('trimtab-'))",
        "names that begin with trimtab- are taken (but for trimtab-run, where runs are kept); choose another",
    ),
)


def check_template(template: dict[str, Any]) -> None:
    """Raise a pydantic error, which names the field, if no pod can be made, or no training be started."""
    pod = template.get("spec")
    if not isinstance(pod, dict):
        raise invalid_value(("template", "spec"), pod, "write a pod's spec with a container named trainer")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
        raise invalid_value(("template", "spec", "containers"), containers, "write a list of containers")
    names = [container.get("name") for container in containers]
    if names.count(TRAINER_CONTAINER) != 1:
        raise invalid_value(("template", "spec", "containers"), names, _NAME_ONE_TRAINER)
    index = names.index(TRAINER_CONTAINER)
    _check_trainer(containers[index], ("template", "spec", "containers", index))
    _check_shapes(template, index)


def _check_shapes(template: dict[str, Any], trainer: int) -> None:
    """Check the parts that the operator adds to; an API server sees the template only afterwards."""
    field, metadata = ("template", "metadata"), template.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise invalid_value(field, metadata, "must hold fields of its own, indented beneath it")
    for kind in ("labels", "annotations"):
        texts = (metadata or {}).get(kind)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            raise invalid_value((*field, kind), texts, "write names and texts, such as {team: vision}")
        for name, text in texts.items():
            if not isinstance(text, str | None):
                raise invalid_value((*field, kind, name), text, _MUST_BE_TEXT)
    pod = template["spec"]
    for name in ("initContainers", "volumes"):
        _check_list_of_objects(pod.get(name), ("template", "spec", name))
    for name in ("ports", "volumeMounts"):
        container = pod["containers"][trainer]
        _check_list_of_objects(container.get(name), ("template", "spec", "containers", trainer, name))


def _check_list_of_objects(value: Any, field: Location) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise invalid_value(field, value, "write a list, each of its items with fields of its own")


def _check_trainer(container: dict[str, Any], field: Location) -> None:
    """Check command, arguments, directory and environment of the training, as an operating system takes them."""
    _check_words(container.get("command"), (*field, "command"))
    if container.get("args") not in (None, []):  # none, as Kubernetes takes them
        _check_words(container["args"], (*field, "args"))
    _check_text(container.get("workingDir"), (*field, "workingDir"))
    _check_environment(container.get("env"), (*field, "env"))


def _check_words(words: Any, field: Location) -> None:
    """Check that a command is a list of strings, not empty."""
    if not isinstance(words, list) or not words:
        raise invalid_value(field, words, f"{_WRITE_A_COMMAND}; quote numbers")
    for index, word in enumerate(words):
        if word is None:
            raise invalid_value((*field, index), "null", _MUST_BE_TEXT)
        _check_text(word, (*field, index))


def _check_environment(variables: Any, field: Location) -> None:
    """Check that variables are as Kubernetes lists them, each with a name that a process can be given."""
    if variables is None:
        return
    if not isinstance(variables, list):
        raise invalid_value(field, variables, "write a list, such as [{name: GREETING, value: hello}]")
    for index, each in enumerate(variables):
        if not isinstance(each, dict):
            raise invalid_value((*field, index), each, "write a variable as {name: GREETING, value: hello}")
        name = each.get("name")
        if not isinstance(name, str) or not _VARIABLE_NAME.fullmatch(name):
            raise invalid_value((*field, index, "name"), name, "name the variable in printable ASCII without =")
        _check_text(each.get("value"), (*field, index, "value"))


def _check_text(text: Any, field: Location) -> None:
    """Check that a text can be given to a process, or is None."""
    if text is None:
        return
    if not isinstance(text, str):
        raise invalid_value(field, text, _MUST_BE_TEXT)
    if "\0" in text:
        raise invalid_value(field, text, "holds a NUL character, which no process can be given; remove it")
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise invalid_value(field, ascii(text), "holds half a character (a surrogate); write it whole") from None
    if num_bytes > _LONGEST_WORD:
        remedy = f"has {num_bytes} bytes, and a process can be given {_LONGEST_WORD} in one word; put it in a file"
        raise invalid_value(field, text, remedy)
