# ruff: noqa: INP001 - a program of its own
"""Make `src/toolexec/discovery/ranking/english.z`, the English words that search does not correct.

They are the 60,000 most frequent words of `frequency_dictionary_en_82_765.txt` in the wheel `symspellpy` (MIT; Google
Books n-grams cut with the word lists of SCOWL), and names that books do not have, of products and formats (below).
Each word is followed by a capital letter for how frequent it is: the binary logarithm of its count, from A for 15.

    pip download --no-deps symspellpy==6.10.1 && python scripts/make_words.py symspellpy-6.10.1-*.whl
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/toolexec/discovery/ranking/english.z"
SOURCE = "symspellpy/frequency_dictionary_en_82_765.txt"
MOST = 60_000
LEAST_LEVEL = 15
NAME_LEVEL = 22
NAMES = """
    airbnb airflow airtable alexa algolia anthropic asana atlassian azure bigquery bing bitbucket bitcoin calendly
    canva cassandra celery chatgpt chromium circleci clickhouse clickup cloudflare cloudwatch codepen confluence
    contentful cron css csv cuda databricks datadog deezer deepseek discord django docker docusign doordash dropbox
    duckdb duckduckgo dynamodb ebay ecmascript elasticsearch etsy evernote excel expedia facebook fastapi ffmpeg figma
    firebase firefox fitbit flickr flutter freshdesk gcp gdpr gemini gitea github gitlab gmail godaddy golang google
    grafana graphql gzip hadoop helm heroku homekit html http https hubspot hugging iban icloud imdb imap instagram
    intercom ios ipad iphone ipv4 ipv6 isbn jenkins jira jpeg jquery json jupyter jwt kafka keycloak kibana klaviyo
    kotlin kubernetes lambda latex laravel linear linkedin linux llama lyft macos mailchimp mapbox mariadb markdown
    matomo mattermost maven medium microservice minio mistral mixpanel mongodb mqtt mysql neo4j netflix netlify netsuite
    nginx nodejs notion npm numpy nvidia oauth okta ollama openai openapi openstack openstreetmap oracle outlook
    pagerduty pandas paypal pdf perplexity php pinecone pinterest pipedrive png podcast podman postgres postgresql
    powerbi powerpoint prometheus puppeteer pypi pytest python pytorch qdrant quickbooks rabbitmq rails raspberry react
    reddit redis redshift regex roblox rss rust salesforce sap scala segment selenium sendgrid sentry servicenow
    sharepoint shopify siri skype slack snapchat snowflake soundcloud splunk spotify sqlite squarespace ssh ssl stripe
    substack supabase svelte svg swift telegram tensorflow terraform tesla tiktok toml trello tripadvisor tumblr twilio
    twitch twitter typescript typeform uber ubuntu udemy unity vercel vimeo vue webflow webpack wechat weaviate whatsapp
    wikidata wikipedia woocommerce wordpress workday xero xml yaml yelp youtube zapier zendesk zillow zoho zoom
"""
SLIPS = "calender chanel"
"""Real words that are a misspelling more often than they are meant."""


def main(wheel: str) -> None:
    """Write the file from the dictionary in *wheel*."""
    with zipfile.ZipFile(wheel) as file:
        rows = [line.split() for line in file.read(SOURCE).decode("utf-8-sig").splitlines()]
    frequent = [(word, int(count)) for word, count in rows if word.isascii() and word.isalpha() and len(word) > 2]
    levels = {word: max(count.bit_length() - 1, LEAST_LEVEL) for word, count in frequent[:MOST]}
    for name in NAMES.split():
        levels[name] = max(levels.get(name, 0), NAME_LEVEL)
    levels.update(dict.fromkeys(SLIPS.split(), LEAST_LEVEL))
    text = "\n".join(f"{word}{chr(ord('A') + level - LEAST_LEVEL)}" for word, level in sorted(levels.items()))
    TARGET.write_bytes(zlib.compress(f"\n{text}\n".encode(), 9))
    sys.stdout.write(f"{len(levels)} words, {TARGET.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
