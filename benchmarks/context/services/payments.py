"""Customers, invoices and payments."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "find_customer": "find a customer by e-mail",
    "create_customer": "add a paying customer",
    "list_invoices": "invoices of a customer",
    "create_invoice": "make an invoice",
    "add_invoice_item": "add a line to an invoice",
    "finalize_invoice": "finalize an invoice",
    "send_invoice": "send an invoice",
    "void_invoice": "cancel an invoice",
    "list_charges": "payments of a customer",
    "refund_charge": "refund a payment",
    "create_coupon": "make a discount code",
    "get_balance": "balance of our account",
    "create_subscription": "subscribe a customer to a plan",
    "cancel_subscription": "end a subscription",
    "create_payment_link": "link where a customer can pay",
}


class Customer(TypedDict):
    id: str
    name: str
    email: str
    currency: str


class Invoice(TypedDict):
    id: str
    customer_id: str
    items: list[str]
    total: int
    status: Literal["draft", "open", "paid", "void"]


class Charge(TypedDict):
    id: str
    customer_id: str
    amount: int
    refunded: int


class Subscription(TypedDict):
    id: str
    customer_id: str
    plan: str
    status: str


def make() -> Service:
    """Return the tools over an account with three customers."""
    service = Service("payments")
    customers = Table(
        "cus",
        {"name": "Northwind", "email": "kim@northwind.example", "currency": "eur"},
        {"name": "Fabrikam", "email": "sam@fabrikam.example", "currency": "eur"},
        {"name": "Tailspin", "email": "ida@tailspin.example", "currency": "usd"},
    )
    invoices = Table(
        "inv",
        {"customer_id": "cus_0001", "items": ["Licences"], "total": 120000, "status": "open"},
        {"customer_id": "cus_0002", "items": ["Support"], "total": 45000, "status": "draft"},
    )
    charges = Table(
        "chg",
        {"customer_id": "cus_0001", "amount": 60000, "refunded": 0},
        {"customer_id": "cus_0002", "amount": 45000, "refunded": 0},
        {"customer_id": "cus_0003", "amount": 9900, "refunded": 0},
    )
    subscriptions = Table("sub", {"customer_id": "cus_0003", "plan": "team", "status": "active"})

    @service.tool(read_only=True)
    def find_customer(query: str) -> list[Customer]:
        """Find customers by their name or e-mail address.

        Args:
            query: Part of the name or the address.
        """
        return customers.select(lambda c: matches(query, c["name"], c["email"]))

    @service.tool()
    def create_customer(name: str, email: str, currency: str = "eur") -> Customer:
        """Create a customer who can be billed.

        Args:
            name: Name of the company or the person.
            email: Where invoices are sent.
            currency: ISO 4217 code in lower case.
        """
        return customers.add(name=name, email=email, currency=currency)

    @service.tool(read_only=True)
    def list_invoices(
        customer_id: str, status: Literal["draft", "open", "paid", "void"] | None = None
    ) -> list[Invoice]:
        """List the invoices of a customer, oldest first.

        Args:
            customer_id: ID of the customer, such as cus_0001.
            status: Only those in this status.
        """
        return invoices.select(lambda i: i["customer_id"] == customer_id and status in (None, i["status"]))

    @service.tool()
    def create_invoice(customer_id: str, days_until_due: int = 14, memo: str = "") -> Invoice:
        """Create an empty draft of an invoice. Add items to it, then finalize it.

        Args:
            customer_id: ID of the customer.
            days_until_due: How many days the customer has to pay.
            memo: A note that is printed on the invoice.
        """
        return invoices.add(customer_id=customer_id, items=[], total=0, status="draft")

    @service.tool()
    def add_invoice_item(invoice_id: str, description: str, amount: int, quantity: int = 1) -> Invoice:
        """Add a line to the draft of an invoice.

        Args:
            invoice_id: ID of the invoice, such as inv_0001.
            description: What the customer pays for.
            amount: Price of one piece, in cents.
            quantity: How many pieces.
        """
        invoice = invoices.get(invoice_id)
        items = [*invoice["items"], description]
        return invoices.change(invoice_id, items=items, total=invoice["total"] + amount * quantity)

    @service.tool()
    def finalize_invoice(invoice_id: str) -> Invoice:
        """Finalize the draft of an invoice: it gets its number and can no longer be changed.

        Args:
            invoice_id: ID of the invoice.
        """
        return invoices.change(invoice_id, status="open")

    @service.tool()
    def send_invoice(invoice_id: str) -> Invoice:
        """Send a finalized invoice to its customer by e-mail, again if it was sent before.

        Args:
            invoice_id: ID of the invoice.
        """
        return invoices.get(invoice_id)

    @service.tool(destructive=True)
    def void_invoice(invoice_id: str, reason: str = "") -> Invoice:
        """Void an open invoice. It stays in the books, and does not have to be paid.

        Args:
            invoice_id: ID of the invoice.
            reason: Why, for the books.
        """
        return invoices.change(invoice_id, status="void")

    @service.tool(read_only=True)
    def list_charges(customer_id: str, limit: int = 10) -> list[Charge]:
        """List the payments that a customer has made, oldest first.

        Args:
            customer_id: ID of the customer.
            limit: How many payments to return at most.
        """
        return charges.select(lambda c: c["customer_id"] == customer_id)[:limit]

    @service.tool()
    def refund_charge(
        charge_id: str,
        amount: int | None = None,
        reason: Literal["duplicate", "fraudulent", "requested_by_customer"] = "requested_by_customer",
    ) -> Charge:
        """Refund a payment, in full or in part. The customer has the money after five to ten days.

        Args:
            charge_id: ID of the payment, such as chg_0001.
            amount: How much, in cents; all of it when it is left out.
            reason: Why the money goes back.
        """
        charge = charges.get(charge_id)
        return charges.change(charge_id, refunded=amount or charge["amount"])

    @service.tool()
    def create_coupon(code: str, percent_off: float, months: int | None = None) -> str:
        """Create a coupon that gives a discount, once or for some months, and return its code.

        Args:
            code: What customers type.
            percent_off: The discount in percent.
            months: For how many months of a subscription it is valid; once when it is left out.
        """
        return code

    @service.tool(read_only=True)
    def get_balance() -> dict[str, int]:
        """Get what is available for payout, in cents by currency."""
        return {"eur": 105000, "usd": 9900}

    @service.tool()
    def create_subscription(
        customer_id: str, plan: str, coupon: str | None = None, trial_days: int = 0
    ) -> Subscription:
        """Subscribe a customer to a plan that is billed each month.

        Args:
            customer_id: ID of the customer.
            plan: Name of the plan: solo, team or enterprise.
            coupon: Code of a coupon.
            trial_days: How many days are free.
        """
        return subscriptions.add(customer_id=customer_id, plan=plan, status="trialing" if trial_days else "active")

    @service.tool(destructive=True)
    def cancel_subscription(subscription_id: str, at_period_end: bool = True) -> Subscription:
        """Cancel a subscription, at once or when the paid period is over.

        Args:
            subscription_id: ID of the subscription, such as sub_0001.
            at_period_end: Whether it goes on until the end of the paid period.
        """
        return subscriptions.change(subscription_id, status="cancelled")

    @service.tool()
    def create_payment_link(description: str, amount: int, currency: str = "eur") -> str:
        """Create a link to a page where customers pay a fixed amount.

        Args:
            description: What is paid for.
            amount: How much, in cents.
            currency: ISO 4217 code in lower case.
        """
        return f"https://pay.acme.example/{amount}-{currency}"

    return service
