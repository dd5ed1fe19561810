"""Contacts, companies and deals."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "search_contacts": "look up a contact",
    "get_contact": "details of a contact",
    "create_contact": "add a contact",
    "update_contact": "change the phone number of a contact",
    "search_companies": "look up a company",
    "list_deals": "open deals",
    "get_deal": "read a deal",
    "create_deal": "add a deal",
    "move_deal_stage": "move a deal to another stage",
    "assign_owner": "who owns a deal",
    "log_activity": "log a call with a contact",
    "list_activities": "what happened with a contact",
    "create_followup": "follow up with a contact",
}

Stage = Literal["lead", "qualified", "proposal", "won", "lost"]


class Contact(TypedDict):
    id: str
    name: str
    email: str
    phone: str
    company: str
    title: str


class Deal(TypedDict):
    id: str
    name: str
    company: str
    amount: int
    stage: Stage
    owner: str


class Activity(TypedDict):
    id: str
    contact_id: str
    kind: str
    text: str
    day: str


def make() -> Service:
    """Return the tools over the customers of a small company."""
    service = Service("crm")

    def contact(name: str, email: str, company: str, title: str, phone: str = "") -> dict[str, Any]:
        return {"name": name, "email": email, "phone": phone, "company": company, "title": title}

    def deal(name: str, company: str, amount: int, stage: str, owner: str = "lena") -> dict[str, Any]:
        return {"name": name, "company": company, "amount": amount, "stage": stage, "owner": owner}

    contacts = Table(
        "con",
        contact("Kim Larsen", "kim@northwind.example", "Northwind", "Head of purchasing", "+45 70 10 20 30"),
        contact("Sam Okafor", "sam@fabrikam.example", "Fabrikam", "Logistics"),
        contact("Ida Brandt", "ida@tailspin.example", "Tailspin", "CTO", "+49 30 555 777"),
        contact("Paul Mercier", "paul@contoso.example", "Contoso", "Sales"),
    )
    deals = Table(
        "deal",
        deal("Northwind licences 2027", "Northwind", 48000, "proposal"),
        deal("Tailspin team plan", "Tailspin", 9600, "qualified", "omar"),
        deal("Fabrikam pilot", "Fabrikam", 5000, "lead"),
    )
    activities = Table(
        "act", {"contact_id": "con_0001", "kind": "call", "text": "Asked for a quote", "day": "2026-11-20"}
    )
    companies = [
        {"name": "Northwind", "industry": "Trade", "employees": 420},
        {"name": "Tailspin", "industry": "Software", "employees": 35},
        {"name": "Fabrikam", "industry": "Manufacturing", "employees": 1800},
        {"name": "Contoso", "industry": "Furniture", "employees": 260},
    ]

    @service.tool(read_only=True)
    def search_contacts(query: str, limit: int = 10) -> list[Contact]:
        """Search contacts by words in their name, e-mail address, company or title.

        Args:
            query: The words; all of them must occur.
            limit: How many contacts to return at most.
        """
        return contacts.select(lambda c: matches(query, c["name"], c["email"], c["company"], c["title"]))[:limit]

    @service.tool(read_only=True)
    def get_contact(contact_id: str) -> Contact:
        """Get a contact with all of its fields.

        Args:
            contact_id: ID of the contact, such as con_0001.
        """
        return contacts.get(contact_id)

    @service.tool()
    def create_contact(name: str, email: str, company: str = "", title: str = "", phone: str = "") -> Contact:
        """Create a contact. Contacts with the same address are refused.

        Args:
            name: Full name.
            email: E-mail address.
            company: Where the person works.
            title: What the person does there.
            phone: Phone number, with the country code.
        """
        if contacts.select(lambda c: c["email"] == email):
            raise ValueError(f"there is a contact with the address {email} already")
        return contacts.add(**contact(name, email, company, title, phone))

    @service.tool()
    def update_contact(
        contact_id: str, email: str | None = None, phone: str | None = None, title: str | None = None
    ) -> Contact:
        """Change fields of a contact. What is not given stays as it is.

        Args:
            contact_id: ID of the contact.
            email: A new e-mail address.
            phone: A new phone number.
            title: A new title.
        """
        return contacts.change(contact_id, email=email, phone=phone, title=title)

    @service.tool(read_only=True)
    def search_companies(query: str = "", industry: str | None = None) -> list[dict[str, Any]]:
        """Search companies by name or industry.

        Args:
            query: Part of the name.
            industry: Only companies of this industry.
        """
        return [one for one in companies if matches(query, str(one["name"])) and industry in (None, one["industry"])]

    @service.tool(read_only=True)
    def list_deals(stage: Stage | None = None, owner: str | None = None, company: str | None = None) -> list[Deal]:
        """List the deals of the pipeline, and filter them by stage, owner and company.

        Args:
            stage: Only deals in this stage.
            owner: Only deals of this user.
            company: Only deals with this company.
        """
        return deals.select(
            lambda d: stage in (None, d["stage"]) and owner in (None, d["owner"]) and company in (None, d["company"])
        )

    @service.tool(read_only=True)
    def get_deal(deal_id: str) -> Deal:
        """Get a deal with its amount, stage and owner.

        Args:
            deal_id: ID of the deal, such as deal_0001.
        """
        return deals.get(deal_id)

    @service.tool()
    def create_deal(name: str, company: str, amount: int, stage: Stage = "lead", owner: str = "lena") -> Deal:
        """Add a deal to the pipeline.

        Args:
            name: What the deal is called.
            company: Name of the company.
            amount: Expected value in euros.
            stage: Where it begins.
            owner: Who is responsible.
        """
        return deals.add(**deal(name, company, amount, stage, owner))

    @service.tool()
    def move_deal_stage(deal_id: str, stage: Stage, reason: str = "") -> Deal:
        """Move a deal to another stage of the pipeline.

        Args:
            deal_id: ID of the deal.
            stage: The new stage.
            reason: Why it was lost; for the stage lost only.
        """
        return deals.change(deal_id, stage=stage)

    @service.tool()
    def assign_owner(deal_id: str, owner: str) -> Deal:
        """Make a user responsible for a deal.

        Args:
            deal_id: ID of the deal.
            owner: Name of the user.
        """
        return deals.change(deal_id, owner=owner)

    @service.tool()
    def log_activity(
        contact_id: str, kind: Literal["call", "meeting", "email", "note"], text: str, day: str
    ) -> Activity:
        """Record a call, a meeting or a message in the history of a contact.

        Args:
            contact_id: ID of the contact.
            kind: What it was.
            text: What was said, in a few words.
            day: When, as ISO 8601 date.
        """
        return activities.add(contact_id=contact_id, kind=kind, text=text, day=day)

    @service.tool(read_only=True)
    def list_activities(contact_id: str, limit: int = 20) -> list[Activity]:
        """List the history of a contact, oldest first.

        Args:
            contact_id: ID of the contact.
            limit: How many activities to return at most.
        """
        return activities.select(lambda a: a["contact_id"] == contact_id)[:limit]

    @service.tool()
    def create_followup(contact_id: str, due: str, text: str, owner: str = "lena") -> str:
        """Create a task to get back to a contact, which its owner is reminded of on the day.

        Args:
            contact_id: ID of the contact.
            due: When, as ISO 8601 date.
            text: What is to be done.
            owner: Who does it.
        """
        return f"{owner}, {due}: {text} ({contacts.get(contact_id)['name']})"

    return service
