"""More services, written after the words and weights were settled: they show how well links are found elsewhere."""

from __future__ import annotations

from tests.discovery.links.services import COUNT, READ, TEXT, count, many, obj, text, tool

from toolexec.model.tool import Tool

_CHANNEL = obj(id=TEXT, name=TEXT, is_private=TEXT, topic=TEXT)
_CUSTOMER = obj(id=TEXT, email=TEXT, name=TEXT, default_source=TEXT)
_INVOICE = obj(id=TEXT, customer=TEXT, number=TEXT, total=COUNT, status=TEXT, charge=TEXT)

OTHERS: list[Tool] = [
    # a chat
    tool("chat:conversations_list", {"limit?": COUNT}, obj(channels=many(_CHANNEL)), READ),
    tool("chat:users_list", {}, obj(members=many(obj(id=TEXT, name=TEXT, real_name=TEXT))), READ),
    tool("chat:users_lookup_by_email", {"email": TEXT}, obj(user=obj(id=TEXT, name=TEXT)), READ),
    tool("chat:conversations_history", {"channel": text("Channel ID")}, obj(messages=many(obj(ts=TEXT, user=TEXT, text=TEXT))), READ),
    tool("chat:chat_post_message", {"channel": text("ID of the channel"), "text": TEXT}, obj(ts=TEXT, channel=TEXT)),
    tool("chat:reactions_add", {"channel": TEXT, "timestamp": text("Timestamp of the message"), "emoji": TEXT}, None),
    tool("chat:conversations_invite", {"channel": TEXT, "users": many(text("User ID"))}, None),
    # payments
    tool("pay:list_customers", {"email?": TEXT}, obj(data=many(_CUSTOMER), has_more=TEXT), READ),
    tool("pay:retrieve_customer", {"customer": text("ID of the customer")}, _CUSTOMER, READ),
    tool("pay:list_invoices", {"customer?": TEXT, "status?": TEXT}, obj(data=many(_INVOICE)), READ),
    tool("pay:finalize_invoice", {"invoice": TEXT}, _INVOICE),
    tool("pay:list_prices", {"product?": TEXT}, obj(data=many(obj(id=TEXT, product=TEXT, unit_amount=COUNT))), READ),
    tool("pay:list_products", {}, obj(data=many(obj(id=TEXT, name=TEXT))), READ),
    tool("pay:create_subscription", {"customer_id": TEXT, "price_id": TEXT}, obj(id=TEXT, status=TEXT)),
    tool("pay:list_subscriptions", {"customer": TEXT}, obj(data=many(obj(id=TEXT, status=TEXT, customer=TEXT))), READ),
    tool("pay:cancel_subscription", {"subscription_id": TEXT}, None),
    tool("pay:refund_charge", {"charge_id": TEXT, "amount?": COUNT}, obj(id=TEXT)),
    # the weather
    tool("weather:geocode_city", {"city": TEXT}, obj(results=many(obj(name=TEXT, latitude={"type": "number"}, longitude={"type": "number"}))), READ),
    tool("weather:get_forecast", {"lat": {"type": "number"}, "lon": {"type": "number"}}, obj(temperature={"type": "number"}), READ),
    # files
    tool("drive:search_files", {"query": TEXT}, obj(files=many(obj(fileId=TEXT, title=TEXT, mimeType=TEXT, parentId=TEXT))), READ),
    tool("drive:download_file", {"file_id": TEXT}, obj(content=TEXT), READ),
    tool("drive:share_file", {"fileId": TEXT, "email_address": TEXT, "role": TEXT}, None),
    tool("drive:list_folders", {}, many(obj(folder_id=TEXT, name=TEXT)), READ),
    tool("drive:move_file", {"file_id": TEXT, "destination_folder_id": TEXT}, None),
    # a cluster
    tool("k8s:list_namespaces", {}, obj(namespaces=many(obj(name=TEXT, phase=TEXT))), READ),
    tool("k8s:list_pods", {"namespace": TEXT}, obj(pods=many(obj(name=TEXT, namespace=TEXT, node=TEXT))), READ),
    tool("k8s:get_pod_logs", {"namespace": TEXT, "pod_name": TEXT, "container?": TEXT}, obj(logs=TEXT), READ),
    tool("k8s:delete_pod", {"namespace": TEXT, "name": text("Name of the pod")}, None),
    tool("k8s:scale_deployment", {"namespace": TEXT, "deployment": TEXT, "replicas": COUNT}, None),
    tool("k8s:list_deployments", {"namespace": TEXT}, many(obj(name=TEXT, replicas=COUNT)), READ),
    # a shop
    tool("shop:find_products", {"q": TEXT}, obj(hits=many(obj(sku=TEXT, productId=COUNT, title=TEXT))), READ),
    tool("shop:add_to_cart", {"product_id": COUNT, "quantity": COUNT}, obj(cart_id=TEXT)),
    tool("shop:checkout", {"cart_id": TEXT, "shipping_address_id": COUNT}, obj(order=obj(id=COUNT, number=TEXT))),
    tool("shop:list_addresses", {}, many(obj(id=COUNT, street=TEXT, city=TEXT)), READ),
    tool("shop:list_orders", {}, obj(orders=many(obj(id=COUNT, number=TEXT, status=TEXT))), READ),
    tool("shop:track_order", {"order_number": TEXT}, obj(carrier=TEXT, tracking_number=TEXT), READ),
    tool("shop:cancel_order", {"id": count("Order ID")}, None),
]  # fmt: skip

OTHERS_EXPECTED: dict[str, dict[str, tuple[str, str]]] = {
    "chat": {
        "channel": ("conversations_list", "chat_post_message"),
        "users": ("users_list", "users_lookup_by_email conversations_history"),
        "timestamp": ("", "conversations_history chat_post_message"),
        "email": ("", "pay:list_customers pay:retrieve_customer"),
    },
    "pay": {
        "customer": ("list_customers", "list_invoices list_subscriptions retrieve_customer finalize_invoice"),
        "customer_id": ("list_customers", "list_invoices list_subscriptions retrieve_customer finalize_invoice"),
        "invoice": ("list_invoices", ""),
        "product": ("list_products", "list_prices"),
        "price_id": ("list_prices", ""),
        "subscription_id": ("list_subscriptions", "create_subscription"),
        "charge_id": ("list_invoices", "finalize_invoice"),
        "email": ("", ""),
    },
    "weather": {
        "lat": ("geocode_city", ""),
        "lon": ("geocode_city", ""),
        "city": ("", "shop:list_addresses"),
    },
    "drive": {
        "file_id": ("search_files", ""),
        "fileId": ("search_files", ""),
        "email_address": ("", "pay:list_customers pay:retrieve_customer"),
        "destination_folder_id": ("list_folders", ""),
    },
    "k8s": {
        "namespace": ("list_namespaces", "list_pods"),
        "pod_name": ("list_pods", ""),
        "name": ("list_pods", ""),
        "deployment": ("list_deployments", ""),
    },
    "shop": {
        "product_id": ("find_products", ""),
        "cart_id": ("add_to_cart", ""),
        "shipping_address_id": ("list_addresses", ""),
        "order_number": ("list_orders", "checkout"),
        "id": ("list_orders", "checkout"),
    },
}
"""As `labels.EXPECTED`."""
