"""A support agent: it looks up orders, and refunds them. A large refund waits for a human."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

from holdfast import Call, Field, ToolError, agent, run, tool

ORDERS = {"o-17": 12.5, "o-18": 340.0}
refunds: dict[str, str] = {}  # the numbers of receipts, by idempotency key: a bank has such a table


@dataclasses.dataclass
class SupportState:
    """What the agent remembers of a conversation."""

    refunded: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Order:
    number: str
    amount: float
    customer: str


@dataclasses.dataclass
class Receipt:
    number: str
    amount: float


OrderNumber = Annotated[str, Field("The number of the order, such as o-17.", pattern="^o-[0-9]+$")]


@tool(read_only=True)
def find_order(order: OrderNumber, call: Call[SupportState]) -> Order:
    """Finds an order of the customer."""
    if order not in ORDERS:
        raise ToolError(f"There is no order {order}.", code="ORDER_UNKNOWN")
    return Order(order, ORDERS[order], call.user.id if call.user else "guest")


def is_large(call: Call[SupportState]) -> bool:
    """A human decides about large refunds, and about the third one of a conversation."""
    return ORDERS.get(call.input["order"], 0) > 100 or len(call.state.refunded) >= 2


@tool(safe=True, approval=is_large, answer_within="48h", timeout="20s")
async def refund(order: OrderNumber, call: Call[SupportState]) -> Receipt:
    """Refunds an order of the customer."""
    if order in call.state.refunded:
        raise ToolError(f"The order {order} was refunded already.", code="REFUNDED")
    call.emit("progress", {"text": f"Refunding {order}"}, id=order)
    # After a crash the call comes again with the same key, and there is still one refund.
    number = refunds.setdefault(call.idempotency_key, f"receipt-{len(refunds) + 1}")
    call.state.refunded.append(order)
    return Receipt(number, ORDERS[order])


support = agent(
    "support",
    model=os.environ.get("MODEL", "scripted/support"),
    description="Looks up orders and refunds them.",
    prompt=lambda call: "You help customers with their orders. "
    f"Refunded in this conversation: {', '.join(call.state.refunded) or 'nothing'}.",
    tools=[find_order, refund],
    state=SupportState,
)

if __name__ == "__main__":
    # On this machine requests need no signature. Elsewhere, set HOLDFAST_ENDPOINT_SECRET.
    run([support], port=int(os.environ.get("PORT", "8000")), reload=True, allow_unsigned=True)
