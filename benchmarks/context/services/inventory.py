"""The stock of a shop."""

from __future__ import annotations

from typing_extensions import TypedDict

from benchmarks.context.services.tables import Service, Table, matches

INTENTS = {
    "list_warehouses": "which warehouses do we have",
    "search_products": "find a product",
    "get_product": "details of a product",
    "get_stock_level": "how many pieces are in stock",
    "adjust_stock": "correct the stock of a product",
    "transfer_stock": "move stock to another warehouse",
    "create_product": "add a product",
    "update_price": "change the price of a product",
    "list_low_stock": "products that run out",
    "list_suppliers": "who supplies a product",
    "create_purchase_order": "order from a supplier",
    "receive_purchase_order": "goods of an order have arrived",
}


class Product(TypedDict):
    id: str
    sku: str
    name: str
    price: float
    supplier_id: str
    reorder_at: int
    stock: dict[str, int]


class Supplier(TypedDict):
    id: str
    name: str
    email: str
    days: int


class PurchaseOrder(TypedDict):
    id: str
    supplier_id: str
    product_id: str
    quantity: int
    warehouse: str
    status: str


def make() -> Service:
    """Return the tools over two warehouses."""
    service = Service("inventory")
    suppliers = Table(
        "sup",
        {"name": "Fabrikam", "email": "sam@fabrikam.example", "days": 5},
        {"name": "Contoso", "email": "orders@contoso.example", "days": 9},
    )
    rows = [
        ("LMP-10", "Desk lamp", 39.0, "sup_0001", 20, 12, 3),
        ("CHR-22", "Office chair", 189.0, "sup_0002", 10, 41, 8),
        ("KBD-31", "Mechanical keyboard", 99.0, "sup_0001", 15, 60, 22),
        ("MON-27", "Monitor 27 inch", 259.0, "sup_0002", 12, 7, 2),
        ("BAG-05", "Travel bag", 59.0, "sup_0001", 8, 25, 0),
    ]
    products = Table(
        "prd",
        *(
            {
                "sku": sku,
                "name": name,
                "price": price,
                "supplier_id": supplier,
                "reorder_at": least,
                "stock": {"berlin": berlin, "lyon": lyon},
            }
            for sku, name, price, supplier, least, berlin, lyon in rows
        ),
    )
    orders = Table("po")

    @service.tool(read_only=True)
    def list_warehouses() -> list[str]:
        """List the names of all warehouses."""
        return ["berlin", "lyon"]

    @service.tool(read_only=True)
    def search_products(query: str, limit: int = 10) -> list[Product]:
        """Search the product catalogue by words in the name or by stock keeping unit.

        Args:
            query: Words of the name, or the SKU.
            limit: How many products to return at most.
        """
        return products.select(lambda p: matches(query, p["name"], p["sku"]))[:limit]

    @service.tool(read_only=True)
    def get_product(product_id: str) -> Product:
        """Get a product with its price, its supplier and its stock by warehouse.

        Args:
            product_id: ID of the product, such as prd_0001.
        """
        return products.get(product_id)

    @service.tool(read_only=True)
    def get_stock_level(product_id: str, warehouse: str | None = None) -> int:
        """Get how many pieces of a product are available, in one warehouse or in all of them.

        Args:
            product_id: ID of the product.
            warehouse: Name of the warehouse; all when it is left out.
        """
        stock = products.get(product_id)["stock"]
        return stock[warehouse] if warehouse else sum(stock.values())

    @service.tool()
    def adjust_stock(product_id: str, warehouse: str, delta: int, reason: str) -> Product:
        """Correct the stock after a count, a loss or a return. The change is written into the stock journal.

        Args:
            product_id: ID of the product.
            warehouse: Name of the warehouse.
            delta: How many pieces are added; negative for what is missing.
            reason: Why, for the journal.
        """
        products.get(product_id)["stock"][warehouse] += delta
        return products.get(product_id)

    @service.tool()
    def transfer_stock(product_id: str, source: str, target: str, quantity: int) -> Product:
        """Move pieces of a product from one warehouse to another.

        Args:
            product_id: ID of the product.
            source: Warehouse that they leave.
            target: Warehouse that gets them.
            quantity: How many pieces.
        """
        stock = products.get(product_id)["stock"]
        if stock[source] < quantity:
            raise ValueError(f"{source} has {stock[source]} pieces only")
        stock[source] -= quantity
        stock[target] += quantity
        return products.get(product_id)

    @service.tool()
    def create_product(sku: str, name: str, price: float, supplier_id: str, reorder_at: int = 10) -> Product:
        """Add a product to the catalogue, with no stock.

        Args:
            sku: Stock keeping unit; it must be unique.
            name: What customers see.
            price: Price in euros, with tax.
            supplier_id: ID of the supplier.
            reorder_at: Below how many pieces it counts as low.
        """
        stock = {"berlin": 0, "lyon": 0}
        return products.add(
            sku=sku, name=name, price=price, supplier_id=supplier_id, reorder_at=reorder_at, stock=stock
        )

    @service.tool()
    def update_price(product_id: str, price: float, valid_from: str | None = None) -> Product:
        """Set the price of a product.

        Args:
            product_id: ID of the product.
            price: New price in euros, with tax.
            valid_from: From which day on, as ISO 8601 date; at once when it is left out.
        """
        return products.change(product_id, price=price)

    @service.tool(read_only=True)
    def list_low_stock(warehouse: str | None = None) -> list[Product]:
        """List the products of which there are fewer pieces than the level at which they are to be ordered again.

        Args:
            warehouse: Count this warehouse only.
        """
        return products.select(
            lambda p: (p["stock"][warehouse] if warehouse else sum(p["stock"].values())) < p["reorder_at"]
        )

    @service.tool(read_only=True)
    def list_suppliers() -> list[Supplier]:
        """List the suppliers with their addresses and how many days their deliveries take."""
        return suppliers.select()

    @service.tool()
    def create_purchase_order(supplier_id: str, product_id: str, quantity: int, warehouse: str) -> PurchaseOrder:
        """Order pieces of a product from a supplier. The order is sent by e-mail.

        Args:
            supplier_id: ID of the supplier, such as sup_0001.
            product_id: ID of the product.
            quantity: How many pieces.
            warehouse: Where they are delivered.
        """
        suppliers.get(supplier_id)
        return orders.add(
            supplier_id=supplier_id, product_id=product_id, quantity=quantity, warehouse=warehouse, status="sent"
        )

    @service.tool()
    def receive_purchase_order(order_id: str, quantity: int | None = None) -> PurchaseOrder:
        """Book the goods of a purchase order into the stock of its warehouse.

        Args:
            order_id: ID of the purchase order, such as po_0001.
            quantity: How many pieces have arrived; all of them when it is left out.
        """
        order = orders.get(order_id)
        products.get(order["product_id"])["stock"][order["warehouse"]] += quantity or order["quantity"]
        return orders.change(order_id, status="received")

    return service
