"""Definitions of agents and their tools."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
import os
import re
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, overload

from .calls import (
    Call,
    CompactCall,
    ContextRow,
    Context,
    EndHookCall,
    GuardCall,
    HookCall,
    MessageHookCall,
    MethodCall,
    ModelHookCall,
    PromptCall,
    StateHookCall,
    StepContextCall,
    StopCall,
    SubAgentHookCall,
    ToolHookCall,
)
from .errors import ToolError
from .schema import MISSING, Codec, Unsupported, codec, object_codec, to_json

__all__ = [
    "Agent",
    "Fail",
    "Guard",
    "Hooks",
    "Replace",
    "Revise",
    "Tool",
    "Verdict",
    "agent",
    "client_tool",
    "sub_agent",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Duration = Union[str, int, float, datetime.timedelta]
"""A text such as 30s, 5m or 24h, a number of seconds, or a timedelta."""
Approval = Union[
    bool, Literal["always", "never"], Mapping[str, Any], Callable[[Call[Any]], Union[bool, Awaitable[bool]]]
]
Result = Union[T, Awaitable[T]]


class Tool(Generic[P, R]):
    """Tool is a tool of agents: make one with `tool`, `client_tool` or `sub_agent`. Calling it calls its function."""

    def __init__(
        self,
        definition: dict[str, Any],
        function: Callable[P, R] | None,
        load: Callable[[Any], Any],
        bind: Callable[[Any, Call[Any]], tuple[list[Any], dict[str, Any]]],
        source: str | None,
        approval: Callable[[Call[Any]], Any] | None = None,
        load_state: Callable[[Any], Any] | None = None,
    ) -> None:
        self.definition = definition
        self.name: str = definition.get("name", "")
        self.function = function
        self.load = load
        self.bind = bind
        self.source = source
        self.approval = approval
        self.load_state = load_state
        self.__doc__ = definition.get("description")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.function is None:
            raise TypeError(f"the tool {self.name!r} has no function here")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<holdfast tool {self.name}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]:
    ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    input: Any = None,
    output: Any = None,
    approval: Approval = False,
    approvers: Literal["any", "others"] | None = None,
    answer_within: Duration | None = None,
    safe: bool = False,
    read_only: bool = False,
    store_reads: Sequence[str] = (),
    timeout: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input: Any = None,
    output: Any = None,
    approval: Approval = False,
    approvers: Literal["any", "others"] | None = None,
    answer_within: Duration | None = None,
    safe: bool = False,
    read_only: bool = False,
    store_reads: Sequence[str] = (),
    timeout: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """tool makes a function the tool of agents: `@tool` or `@tool(safe=True)`. The function may be async.

    Its parameters are the arguments, with the types of their hints; see `holdfast.schema`. A parameter of type `Call`
    is the call itself. The docstring is the description, and the result has the type of the return hint.

    name: default the function's name.
    input: a type or a JSON Schema, for a function with a single argument in place of named ones.
    output: a type or a JSON Schema of the result, in place of the return hint.
    approval: True, or a function of the call: whether it needs the approval of a human. Or conditions, as in agents
        files.
    approvers: "others" excludes whoever started the run.
    answer_within: how long an approval may take; default no limit.
    safe: a call whose outcome is unknown runs again, with the same `idempotency_key`.
    read_only: calls change nothing, so they may run again.
    store_reads: beginnings of the keys of the private store that `call.store` can read. Each request then carries their
        entries: at most 16 prefixes, 1,000 keys and 1 MiB.
    timeout: of one execution; default the executor's.
    strict: asks the provider to constrain the arguments to their schema.
    finish_with: a successful call ends the run, and its result is the output.
    extra: further members of the tool, as in agents files."""
    names = _names_of_caller()

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        about = _describe(function, name, description, input, output, names)
        definition = about.definition
        rule = approval if callable(approval) else None
        if safe:
            definition["retry"] = "safe"
        if read_only:
            definition["readOnly"] = True
        if isinstance(approval, Mapping):
            definition["approval"] = dict(approval)
        elif rule is None and approval:
            definition["approval"] = "never" if approval == "never" else "always"
        _put(
            definition,
            approvers=approvers,
            answerWithin=_duration("answer_within", answer_within),
            timeout=_duration("timeout", timeout),
            strict=strict or None,
            finishWith=finish_with or None,
            storeReads=list(store_reads) or None,
            **(extra or {}),
        )
        definition["callbacks"] = ["execute"] + (["approval"] if rule else [])
        return Tool(definition, function, about.load, about.bind, _source(function), rule, about.load_state)

    return make(function) if function is not None else make


@overload
def client_tool(function: Callable[P, R], /) -> Tool[P, R]:
    ...


@overload
def client_tool(
    *,
    name: str,
    input: Any,
    description: str | None = None,
    output: Any = None,
    answer_within: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Tool[..., Any]:
    ...


@overload
def client_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    output: Any = None,
    answer_within: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]:
    ...


def client_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    input: Any = None,
    output: Any = None,
    answer_within: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """client_tool declares a tool whose calls a client answers, for example the user's browser. It decorates a
    function that is never called, for its hints and its docstring; or takes `name` and `input`, a type or a JSON
    Schema. The run waits without limit, or for `answer_within`. The other options are those of `tool`."""
    names = _names_of_caller()

    def make(function: Callable[..., Any] | None) -> Tool[..., Any]:
        if function is not None:
            about = _describe(function, name, description, None, output, names)
            definition = about.definition
        else:
            definition = {"name": name}
            _put(
                definition,
                description=description,
                inputSchema=_schema(input, names),
                outputSchema=None if output is None else _schema(output, names, output=True),
            )
        definition["client"] = True
        _put(
            definition,
            answerWithin=_duration("answer_within", answer_within),
            strict=strict or None,
            finishWith=finish_with or None,
            **(extra or {}),
        )
        source = _source(function) if function is not None else _source_of_caller()
        return Tool(definition, None, _as_is, _unbound, source)

    return make(function) if function is not None or input is not None else make


def sub_agent(
    agent: str | Agent,
    description: str | None = None,
    *,
    input: Any = None,
    output: Any = None,
    timeout: Duration | None = None,
    strict: bool = False,
    finish_with: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Tool[..., Any]:
    """sub_agent is a tool that another agent answers, in a session of its own. The default of input is an object with
    a `message`; timeout limits the time from the call to the answer, default no limit."""
    names = _names_of_caller()
    name = agent if isinstance(agent, str) else agent.name
    definition: dict[str, Any] = {"subAgent": name}
    _put(
        definition,
        description=description,
        inputSchema=None if input is None else _schema(input, names),
        outputSchema=None if output is None else _schema(output, names, output=True),
        timeout=_duration("timeout", timeout),
        strict=strict or None,
        finishWith=finish_with or None,
        **(extra or {}),
    )
    made: Tool[..., Any] = Tool(definition, None, _as_is, _unbound, _source_of_caller())
    made.name = f"subagent__{name}"
    return made


@dataclasses.dataclass(frozen=True)
class Revise:
    """Revise is a verdict of a guard: the text is sent to the model, and the run continues."""

    text: str


@dataclasses.dataclass(frozen=True)
class Fail:
    """Fail is a verdict of a guard: the run fails with the text, which users see."""

    text: str


@dataclasses.dataclass(frozen=True)
class Replace:
    """Replace is a verdict of the guard `on_output`: the value becomes the output, unchecked."""

    output: Any


Verdict = Union[Revise, Fail, Replace, None]
"""The decision of a guard; None accepts."""


@dataclasses.dataclass(frozen=True)
class Guard:
    """Guard checks the end of a run: `on_output` an output that fits its schema, `on_reply` the last text of an agent
    without one. An error fails the run. After a crash a guard may be called again for the same end."""

    on_output: Callable[[GuardCall[Any]], Result[Verdict]] | None = None
    on_reply: Callable[[GuardCall[Any]], Result[Verdict]] | None = None


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Hooks are called during a run. An error is logged and has no effect, except in `before_run`, which fails the
    run. After a crash a hook may be called again for the same event."""

    before_run: Callable[[HookCall[Any]], Result[None]] | None = None
    on_start: Callable[[HookCall[Any]], Result[None]] | None = None
    """Before the first step of a new run."""
    on_resume: Callable[[HookCall[Any]], Result[None]] | None = None
    """Before the first step of a run that continues another one."""
    before_model: Callable[[ModelHookCall[Any]], Result[None]] | None = None
    after_model: Callable[[ModelHookCall[Any]], Result[None]] | None = None
    before_tool: Callable[[ToolHookCall[Any]], Result[None]] | None = None
    after_tool: Callable[[ToolHookCall[Any]], Result[None]] | None = None
    before_sub_agent: Callable[[SubAgentHookCall[Any]], Result[None]] | None = None
    """Before the commit that gives a sub-agent its task."""
    after_sub_agent: Callable[[SubAgentHookCall[Any]], Result[None]] | None = None
    """When the run takes in the answer of a sub-agent."""
    on_state_change: Callable[[StateHookCall[Any]], Result[None]] | None = None
    """The writes of one tool call, or of an earlier hook."""
    on_message: Callable[[MessageHookCall[Any]], Result[None]] | None = None
    """Each message before the step appends it."""
    after_run: Callable[[EndHookCall[Any]], Result[None]] | None = None
    """After the end of the run is committed."""


Method = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Agent:
    """Agent is the definition of an agent: make one with `agent`."""

    name: str
    definition: dict[str, Any]
    tools: dict[str, Tool[..., Any]]
    callbacks: dict[str, Callable[[Any], Any]]
    methods: dict[str, _Method]
    load_state: Callable[[Any], Any] | None
    sources: dict[str, str]


def agent(
    name: str,
    *,
    model: str | None = None,
    description: str | None = None,
    fallbacks: Sequence[str] | None = None,
    system_prompt: str | None = None,
    prompt: str | Callable[[PromptCall[Any]], Result[str]] | None = None,
    tools: Sequence[Tool[..., Any] | str | Mapping[str, Any]] = (),
    state: Any = None,
    output: Any = None,
    completion: Literal["tool", "native"] | None = None,
    strict_output: bool | None = None,
    max_steps: int | float | None = None,
    remote: Mapping[str, Any] | None = None,
    companions: Sequence[Mapping[str, Any]] | None = None,
    max_companions: int | None = None,
    max_sub_agents: int | None = None,
    max_depth: int | None = None,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
    max_retries: int | None = None,
    run_timeout: Duration | None = None,
    cache: Literal["none", "auto"] | None = None,
    provider_options: Mapping[str, Mapping[str, Any]] | None = None,
    context: Mapping[str, Any] | None = None,
    compact: Callable[[CompactCall[Any]], Result[str]] | None = None,
    step_context: Callable[[StepContextCall[Any]], Result[Sequence[ContextRow] | None]] | None = None,
    stop_when: Callable[[StopCall[Any]], Result[bool]] | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    on_busy: Literal["reject", "enqueue", "interrupt", "rollback"] | None = None,
    caller_tools: Mapping[str, Any] | None = None,
    caller_instructions: bool | None = None,
    guard: Guard | None = None,
    hooks: Hooks | None = None,
    methods: Sequence[Method] | Mapping[str, Method] = (),
    extra: Mapping[str, Any] | None = None,
) -> Agent:
    """agent defines an agent. The fields are those of agents files (docs/agents-yaml.md), in snake_case. Beside them:

    prompt: a template, or a function that returns the system prompt for the state at the start of the step.
    tools: functions with `@tool`, client tools, sub-agents; names of built-in tools; entries as in agents files.
    state: a dataclass, a TypedDict, a pydantic model or a JSON Schema: the type of `call.state`.
    output: the same for the output of the agent; default its text.
    max_steps: `math.inf` for no limit.
    compact: writes the summary of older messages; needs `context` with the compaction "summary".
    step_context: returns rows of context for the next model call. An error fails the run.
    stop_when: rules as in agents files, or a function that is called after each step.
    caller_tools: permits callers to bring tools whose calls they answer: `{"allow": True}`, or patterns of names such
        as `{"allow": ["page_*"], "max": 4}`.
    caller_instructions: permits callers to add instructions behind the system prompt. With them, a caller can make the
        model ignore the prompt.
    guard, hooks: see `Guard` and `Hooks`.
    methods: functions that clients of `/agents` call by their names, outside of runs: the arguments of the client come
        in order, converted by their hints, and a parameter of type `MethodCall` is the call itself.
    extra: further fields, as in agents files.

    ValueError or TypeError for what can be seen to be wrong here; the executor checks the rest."""
    names = _names_of_caller()
    definition: dict[str, Any] = {"name": name}
    callbacks: dict[str, Callable[[Any], Any]] = {}
    if system_prompt is not None and prompt is not None:
        raise ValueError(f"agent {name!r}: give either system_prompt or prompt")
    if callable(prompt):
        callbacks["prompt"] = prompt
        prompt = None
    if callable(stop_when):
        callbacks["stopWhen"] = stop_when
        stop_when = None
    if compact is not None:
        callbacks["compact"] = compact
    if step_context is not None:
        callbacks["stepContext"] = step_context
    for part, prefix in ((guard, "guard"), (hooks, "hooks")):
        for field in dataclasses.fields(part) if part is not None else ():
            if (callback := getattr(part, field.name)) is not None:
                callbacks[f"{prefix}.{_camel(field.name)}"] = callback
    by_name = {}
    entries: list[Any] = []
    sources = {}
    for entry in tools:
        if not isinstance(entry, (Tool, str, Mapping)):
            raise TypeError(f"agent {name!r}: {entry!r:.80} is no tool: decorate the function with @tool")
        if isinstance(entry, Tool):
            if entry.name in by_name:
                raise ValueError(f"agent {name!r}: the tool {entry.name!r} is listed twice")
            by_name[entry.name] = entry
            if entry.source:
                sources[f"{name}/{entry.name}"] = entry.source
        entries.append(
            entry.definition if isinstance(entry, Tool) else entry if isinstance(entry, str) else dict(entry)
        )
    if source := _source_of_caller():
        sources[name] = source
    named = dict(methods) if isinstance(methods, Mapping) else {method.__name__: method for method in methods}
    state_codec = None if state is None else _codec(state, names, lenient=True)
    if max_steps is not None and math.isinf(max_steps):
        max_steps_json: int | str | None = "Infinity"
    else:
        max_steps_json = None if max_steps is None else int(max_steps)
    _put(
        definition,
        model=model,
        description=description,
        fallbacks=fallbacks and list(fallbacks),
        systemPrompt=system_prompt,
        prompt=prompt,
        tools=entries or None,
        stateSchema=state_codec and state_codec.schema,
        outputSchema=None if output is None else _schema(output, names),
        completion=completion,
        strictOutput=strict_output,
        maxSteps=max_steps_json,
        remote=remote and _camel_keys(remote),
        companions=companions and [_camel_keys(companion) for companion in companions],
        maxCompanions=max_companions,
        maxSubAgents=max_sub_agents,
        maxDepth=max_depth,
        maxOutputTokens=max_output_tokens,
        temperature=temperature,
        maxRetries=max_retries,
        runTimeout=_duration("run_timeout", run_timeout),
        cache=cache,
        providerOptions=provider_options and to_json(provider_options),
        context=context and _camel_keys(context),
        stopWhen=stop_when and to_json(stop_when),
        onBusy=on_busy,
        callerTools=caller_tools and _camel_keys(caller_tools),
        callerInstructions=caller_instructions,
        **(extra or {}),
    )
    if callbacks:
        definition["callbacks"] = sorted(callbacks)
    if named:
        definition["methods"] = list(named)
    return Agent(
        name,
        definition,
        by_name,
        callbacks,
        {key: _method(key, method, names) for key, method in named.items()},
        None if isinstance(state, dict) or state_codec is None else state_codec.load,
        sources,
    )


@dataclasses.dataclass(frozen=True)
class _About:
    definition: dict[str, Any]
    load: Callable[[Any], Any]
    bind: Callable[[Any, Call[Any]], tuple[list[Any], dict[str, Any]]]
    load_state: Callable[[Any], Any] | None  # by the type in Call[...]


@dataclasses.dataclass(frozen=True)
class _Method:
    function: Method
    load: Callable[[list[Any]], list[Any]]
    bind: Callable[[list[Any], MethodCall[Any]], list[Any]]
    load_state: Callable[[Any], Any] | None


def _describe(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    input: Any,
    output: Any,
    names: Mapping[str, Any],
) -> _About:
    """_describe derives the definition of a tool from its function."""
    name = name or getattr(function, "__name__", "")
    if name == "<lambda>" or not name:
        raise ValueError("a tool without a named function needs a name")
    try:
        parameters, hints = _parameters(function, names)
        call_name, state, arguments = _split(parameters, hints, Call)
        if input is not None:
            if len(arguments) != 1:
                raise Unsupported("a function with input= takes one argument, and a Call if it wants one")
            found = _codec(input, names)
            if found.schema.get("type") != "object" and "$ref" not in found.schema:
                raise Unsupported("the input must be an object")
        else:
            members = {}
            for parameter in arguments:
                if parameter.name not in hints:
                    raise Unsupported(f"the parameter {parameter.name} has no type hint")
                members[parameter.name] = hints[parameter.name], _default(parameter)
            found = object_codec(members, local_names=names)
        result = hints.get("return", Any) if output is None else output
        result = _awaited(result)
        output_schema = None if result in (Any, None, type(None), object) else _schema(result, names, output=True)
    except Unsupported as error:
        raise Unsupported(f"the tool {name!r}: {error}") from None
    definition: dict[str, Any] = {"name": name}
    text = description if description is not None else inspect.getdoc(function)
    _put(definition, description=text or None, inputSchema=found.schema, outputSchema=output_schema)

    def bind(loaded: Any, call: Call[Any]) -> tuple[list[Any], dict[str, Any]]:
        values = {arguments[0].name: loaded} if input is not None else dict(loaded)
        if call_name:
            values[call_name] = call
        positional = [
            values.pop(parameter.name, parameter.default)
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        return positional, values

    return _About(definition, found.load, bind, None if state is None else _codec(state, names, lenient=True).load)


def _method(name: str, function: Method, names: Mapping[str, Any]) -> _Method:
    """_method prepares a method: the arguments of the client come in the order of its parameters."""
    try:
        parameters, hints = _parameters(function, names, variable=True)
        call_name, state, arguments = _split(parameters, hints, MethodCall)
        loaders = [(parameter, _codec(hints.get(parameter.name, Any), names).load) for parameter in arguments]
    except Unsupported as error:
        raise Unsupported(f"the method {name!r}: {error}") from None
    rest = next((load for parameter, load in loaders if parameter.kind is parameter.VAR_POSITIONAL), None)
    fixed = [(parameter, load) for parameter, load in loaders if parameter.kind is not parameter.VAR_POSITIONAL]

    def load_all(args: list[Any]) -> list[Any]:
        required = sum(parameter.default is parameter.empty for parameter, _ in fixed)
        if len(args) < required or len(args) > len(fixed) and rest is None:
            raise ToolError(
                f"The method {name} takes {len(fixed)} arguments, and was called with {len(args)}.",
                code="ARGUMENT_INVALID",
            )
        loads = [load for _, load in fixed] + [rest or _as_is] * max(0, len(args) - len(fixed))
        loaded = []
        for number, (load, value) in enumerate(zip(loads, args), 1):
            try:
                loaded.append(load(value))
            except ValueError as error:
                raise ToolError(
                    f"Argument {number} of the method {name} does not fit: {error}", code="ARGUMENT_INVALID"
                ) from None
        return loaded

    def bind(loaded: list[Any], call: MethodCall[Any]) -> list[Any]:
        values = list(loaded)
        if call_name:
            place = [parameter.name for parameter in parameters].index(call_name)
            values[len(values) : place] = [parameter.default for parameter in parameters[len(values) : place]]
            values.insert(place, call)
        return values

    return _Method(function, load_all, bind, None if state is None else _codec(state, names, lenient=True).load)


def _parameters(
    function: Callable[..., Any], names: Mapping[str, Any], variable: bool = False
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """_parameters returns the parameters of a function and the types of their hints."""
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD or parameter.kind is parameter.VAR_POSITIONAL and not variable:
            raise Unsupported(f"the parameter {parameter} stands for any number of arguments: name each")
    hinted = function
    while not hasattr(hinted, "__annotations__") and hasattr(hinted, "func"):
        hinted = hinted.func  # of a functools.partial
    if not inspect.isroutine(hinted) and not isinstance(hinted, type):
        hinted = type(hinted).__call__  # of an object that can be called
    try:
        hints = typing.get_type_hints(hinted, localns=dict(names), include_extras=True)
    except NameError as error:
        raise Unsupported(f"{error}: define the type at the top of its module") from None
    return parameters, hints


def _split(
    parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], kind: type[Context[Any]]
) -> tuple[str | None, Any, list[inspect.Parameter]]:
    """_split finds the parameter with the call: its name, the type of the state in its hint, and the other
    parameters."""
    call_name, state = None, None
    arguments = []
    for parameter in parameters:
        hint = hints.get(parameter.name)
        if get_origin(hint) in (Union, types.UnionType):  # call: Call | None = None
            hint = next((one for one in get_args(hint) if (get_origin(one) or one) is kind), hint)
        if (get_origin(hint) or hint) is not kind:
            arguments.append(parameter)
            continue
        if call_name:
            raise Unsupported(f"both {call_name} and {parameter.name} are the call")
        call_name = parameter.name
        state = next(iter(get_args(hint)), None)
    return call_name, None if state is Any or isinstance(state, TypeVar) else state, arguments


def _awaited(hint: Any) -> Any:
    """_awaited returns the T of an Awaitable[T] or a Coroutine[..., T], and any other hint as it is."""
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        return get_args(hint)[-1]
    return hint


def _default(parameter: inspect.Parameter) -> Any:
    return MISSING if parameter.default is parameter.empty else parameter.default


def _codec(hint: Any, names: Mapping[str, Any], *, lenient: bool = False) -> Codec:
    return codec(hint, local_names=names, lenient=lenient)


def _schema(hint: Any, names: Mapping[str, Any], *, output: bool = False) -> dict[str, Any]:
    return codec(hint, local_names=names, output=output).schema


def _as_is(value: Any) -> Any:
    return value


def _unbound(loaded: Any, call: Call[Any]) -> tuple[list[Any], dict[str, Any]]:
    raise TypeError(f"the tool {call.tool!r} has no function here")


def _put(definition: dict[str, Any], **members: Any) -> None:
    definition.update({name: value for name, value in members.items() if value is not None})


_DURATION = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def _duration(field: str, value: Duration | None) -> str | None:
    """_duration returns a duration as agents files have it."""
    if value is None:
        return None
    if isinstance(value, str):
        if not re.fullmatch(f"({_DURATION.pattern})+", value):
            raise ValueError(f"{field}: {value!r} is no duration such as 30s, 5m or 24h")
        return value
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    if not 0 < seconds < 2**33:
        raise ValueError(f"{field}: {seconds:g} seconds must be above 0")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _camel_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """_camel_keys returns the fields of a part of an agent as agents files name them. Both forms are accepted."""
    made = {
        _camel(name): to_json(value) if not isinstance(value, datetime.timedelta) else value
        for name, value in fields.items()
    }
    if "timeout" in made:
        made["timeout"] = _duration("timeout", made["timeout"])
    return made


def _names_of_caller() -> Mapping[str, Any]:
    """_names_of_caller returns the local names where a tool or an agent is defined: hints may be about types of a
    function."""
    frame = _frame_of_caller()
    return {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _frame_of_caller() -> types.FrameType | None:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame


def _source_of_caller() -> str | None:
    frame = _frame_of_caller()
    return None if frame is None else _place(frame.f_code.co_filename, frame.f_lineno)


def _source(function: Any) -> str | None:
    """_source returns where a function is defined: a relative path and a line."""
    function = inspect.unwrap(function)
    while hasattr(function, "func"):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)
    return None if code is None else _place(code.co_filename, code.co_firstlineno)


def _place(path: str, line: int) -> str:
    """_place names a line of a file, relative to the working folder or to the nearest folder that is searched for
    modules."""
    path = os.path.abspath(path)
    folders = [os.getcwd(), *sorted((os.path.abspath(folder) for folder in sys.path if folder), key=len, reverse=True)]
    for folder in folders:
        if path.startswith(folder + os.sep):
            return f"{os.path.relpath(path, folder).replace(os.sep, '/')}:{line}"
    return f"{os.path.basename(path)}:{line}"
