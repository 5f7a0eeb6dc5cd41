"""Holdfast: agents in Python, and a client.

    from holdfast import Call, agent, run, tool

    @tool(read_only=True)
    def order_status(order: str, call: Call) -> str:
        "Tells where an order is."
        return warehouse.status(order, customer=call.user.id)

    support = agent("support", model="anthropic/claude-sonnet-4-5", system_prompt="You help customers.",
    tools=[order_status])

    run([support], port=8000)

docs/agents-python.md explains the rest.
"""

from .agents import Agent, Fail, Guard, Hooks, Replace, Revise, Tool, Verdict, agent, client_tool, sub_agent, tool
from .calls import (
    Call,
    CompactCall,
    Context,
    ContextRow,
    EndHookCall,
    GuardCall,
    HookCall,
    Message,
    MessageHookCall,
    MethodCall,
    ModelHookCall,
    PromptCall,
    Run,
    Session,
    StateHookCall,
    StepContextCall,
    StopCall,
    SubAgentHookCall,
    ToolCall,
    ToolHookCall,
    ToolResult,
    User,
)
from .client import Answer, Holdfast, HoldfastError, RunFailedError
from .endpoint import Endpoint, serve
from .errors import CallEnded, Cancelled, ToolError
from .schema import Field
from .server import Server, run

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "Call",
    "CallEnded",
    "Cancelled",
    "CompactCall",
    "Context",
    "ContextRow",
    "EndHookCall",
    "Endpoint",
    "Fail",
    "Field",
    "Guard",
    "GuardCall",
    "Holdfast",
    "HoldfastError",
    "HookCall",
    "Hooks",
    "Message",
    "MessageHookCall",
    "MethodCall",
    "ModelHookCall",
    "PromptCall",
    "Replace",
    "Revise",
    "Run",
    "RunFailedError",
    "Server",
    "Session",
    "StateHookCall",
    "StepContextCall",
    "StopCall",
    "SubAgentHookCall",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolHookCall",
    "ToolResult",
    "User",
    "Verdict",
    "agent",
    "client_tool",
    "run",
    "serve",
    "sub_agent",
    "tool",
]
