"""What people ask for in everyday words finds the tool that does it."""

from __future__ import annotations

import pytest

from toolexec import InMemoryIndex, LocalBinding, Tool

# Names and parameters are those of well-known MCP servers, the texts are ours.
CATALOGUE = """
fetch:fetch | Fetches a URL from the internet and extracts its contents as markdown. | url max_length start_index raw
brave-search:brave_web_search | Performs a web search with the Brave API. Use it for recent events and broad queries. | query count offset
brave-search:brave_local_search | Searches for local businesses and places. | query count
filesystem:read_file | Read the complete contents of a file. | path
filesystem:read_multiple_files | Read the contents of several files at once. | paths
filesystem:write_file | Create a new file or overwrite one. | path content
filesystem:edit_file | Make line-based edits to a text file. | path edits
filesystem:create_directory | Create a new directory, with its parents. | path
filesystem:list_directory | List the files and directories in a path. | path
filesystem:move_file | Move or rename files and directories. | source destination
filesystem:search_files | Recursively search for files that match a pattern. | path pattern
filesystem:get_file_info | Metadata of a file or directory: size, times, permissions. | path
git:git_status | Shows the working tree status. | repo_path
git:git_diff_unstaged | Shows changes in the working directory that are not yet staged. | repo_path
git:git_commit | Records changes to the repository. | repo_path message
git:git_log | Shows the commit logs. | repo_path max_count
git:git_create_branch | Creates a new branch from an optional base branch. | repo_path branch_name
git:git_checkout | Switches branches. | repo_path branch_name
github:create_issue | Create a new issue in a repository. | owner repo title body
github:list_issues | List issues with filters. | owner repo state
github:create_pull_request | Create a new pull request. | owner repo title head base
github:merge_pull_request | Merge a pull request. | owner repo pull_number
github:search_code | Search for code across repositories. | q
github:fork_repository | Fork a repository to your account. | owner repo
gmail:send_email | Sends a new email. | to subject body
gmail:search_emails | Searches for emails with search syntax. | query
gmail:read_email | Retrieves the content of an email. | messageId
google-calendar:create-event | Create a calendar event. | summary start end attendees
google-calendar:list-events | List the events of a calendar. | timeMin timeMax
slack:slack_post_message | Post a new message to a channel. | channel_id text
slack:slack_get_channel_history | Get recent messages from a channel. | channel_id limit
slack:slack_add_reaction | Add a reaction emoji to a message. | channel_id timestamp reaction
twilio:send_sms | Send an SMS. | to body
memory:create_entities | Create entities in the knowledge graph. | entities
memory:add_observations | Add observations to entities of the knowledge graph. | observations
memory:search_nodes | Search for nodes in the knowledge graph. | query
time:get_current_time | Get the current time in a timezone. | timezone
time:convert_time | Convert a time between timezones. | source_timezone time target_timezone
sqlite:read_query | Execute a SELECT query on the SQLite database. | query
sqlite:write_query | Execute an INSERT, UPDATE or DELETE query. | query
sqlite:list_tables | List all tables in the database. |
sqlite:describe_table | The schema of a table. | table_name
playwright:browser_navigate | Navigate to a URL. | url
playwright:browser_take_screenshot | Take a screenshot of the current page. | filename
playwright:browser_click | Perform a click on an element. | element ref
playwright:browser_type | Type text into an editable element. | element text
everart:generate_image | Generate images with EverArt models. | prompt model image_count
elevenlabs:text_to_speech | Convert text to speech with a voice and save the audio. | text voice_name
whisper:transcribe_audio | Transcribe an audio recording to text. | file_path
google-maps:maps_directions | Get directions between two points. | origin destination mode
google-maps:maps_search_places | Search for places near a location. | query location radius
google-maps:maps_geocode | Convert an address into coordinates. | address
weather:get_forecast | Get the weather forecast for a location. | latitude longitude
weather:get_alerts | Get weather alerts for a state. | state
spotify:play_track | Play a track on a device. | uri
spotify:create_playlist | Create a playlist. | name
youtube:get_transcript | Get the transcript of a video. | url lang
youtube:search_videos | Search for videos. | query
wikipedia:get_summary | Get a summary of a Wikipedia article. | title
arxiv:search_papers | Search for papers on arXiv. | query max_results
airbnb:airbnb_search | Search for listings with dates, guests and prices. | location checkin checkout adults
flights:search_flights | Search for flights between two airports. | origin destination date
stripe:create_refund | Refund a payment intent. | payment_intent amount
stripe:create_invoice | Create an invoice. | customer
stripe:retrieve_balance | Retrieve the balance. |
finance:get_quote | Get the current quote of a ticker symbol. | symbol
finance:convert_currency | Convert an amount between currencies. | amount source target
homeassistant:light_turn_on | Turn on a light. | entity_id brightness
homeassistant:climate_set_temperature | Set the target temperature of a thermostat. | entity_id temperature
todoist:create_task | Create a new task, with a due date. | content due_string
todoist:close_task | Mark a task as complete. | task_id
reminders:create_reminder | Create a reminder. | title due
notion:create_page | Create a page in a workspace. | parent properties
obsidian:append_content | Append content to a note in the vault. | filepath content
google-sheets:append_values | Append values to a range of a sheet. | spreadsheetId range values
google-drive:gdrive_search | Search for files in Google Drive. | query
google-slides:create_presentation | Create a presentation. | title
deepl:translate_text | Translate text to a target language. | text target_lang
calculator:calculate | Evaluates an expression. | expression
contacts:search_people | Find people by name. | query
news:top_headlines | The top headlines of a country. | country category
docker:create_container | Create a new container. | image name
kubernetes:list_pods | List pods in a namespace. | namespace
"""

INTENTS = {
    "website": "fetch:fetch playwright:browser_navigate",
    "read a website": "fetch:fetch",
    "open a webpage": "playwright:browser_navigate fetch:fetch",
    "download a link": "fetch:fetch",
    "visit a site": "playwright:browser_navigate fetch:fetch",
    "http request": "fetch:fetch",
    "look something up online": "brave-search:brave_web_search",
    "google it": "brave-search:brave_web_search google-drive:gdrive_search",
    "mail my boss": "gmail:send_email",
    "check my inbox": "gmail:search_emails gmail:read_email",
    "send a text": "twilio:send_sms",
    "whatsapp": "twilio:send_sms slack:slack_post_message",
    "draw a picture": "everart:generate_image",
    "make a photo of a cat": "everart:generate_image",
    "logo": "everart:generate_image",
    "capture the screen": "playwright:browser_take_screenshot",
    "say it aloud": "elevenlabs:text_to_speech",
    "dictation": "whisper:transcribe_audio",
    "podcast to text": "whisper:transcribe_audio",
    "movie": "youtube:search_videos youtube:get_transcript",
    "film clips": "youtube:search_videos",
    "subtitles": "youtube:get_transcript",
    "listen to a song": "spotify:play_track",
    "some music": "spotify:play_track spotify:create_playlist",
    "will it rain tomorrow": "weather:get_forecast weather:get_alerts",
    "storm": "weather:get_alerts weather:get_forecast",
    "what's the clock": "time:get_current_time",
    "route to work": "google-maps:maps_directions",
    "restaurant nearby": "google-maps:maps_search_places brave-search:brave_local_search",
    "map": "google-maps:maps_search_places google-maps:maps_geocode google-maps:maps_directions",
    "hotel": "airbnb:airbnb_search",
    "a place to stay": "airbnb:airbnb_search",
    "plane tickets": "flights:search_flights",
    "stock price": "finance:get_quote",
    "exchange rate": "finance:convert_currency",
    "bank account": "stripe:retrieve_balance",
    "give the money back": "stripe:create_refund",
    "lamp": "homeassistant:light_turn_on",
    "heating": "homeassistant:climate_set_temperature",
    "appointment": "google-calendar:create-event google-calendar:list-events",
    "my agenda": "google-calendar:list-events",
    "remember that she likes tea": "memory:add_observations memory:create_entities",
    "alarm": "reminders:create_reminder",
    "chores": "todoist:create_task todoist:close_task",
    "jot something down": "obsidian:append_content",
    "excel": "google-sheets:append_values",
    "slides": "google-slides:create_presentation",
    "powerpoint": "google-slides:create_presentation",
    "math": "calculator:calculate",
    "encyclopedia": "wikipedia:get_summary",
    "research": "arxiv:search_papers",
    "journal article": "arxiv:search_papers wikipedia:get_summary news:top_headlines",
    "phonebook": "contacts:search_people",
    "sql": "sqlite:read_query sqlite:write_query",
    "folder": "filesystem:create_directory filesystem:list_directory",
    "bug report": "github:create_issue github:list_issues",
    "put it in french": "deepl:translate_text",
    "what happened in the world today": "news:top_headlines",
}


@pytest.fixture(scope="module")
def index() -> InMemoryIndex:
    """The tools of the catalogue."""
    made = InMemoryIndex()
    for line in CATALOGUE.strip().splitlines():
        tool_id, text, parameters = map(str.strip, line.split("|"))
        namespace, _, name = tool_id.partition(":")
        schema = {"type": "object", "properties": {key: {} for key in parameters.split()}}
        made.register(
            Tool(name=name, namespace=namespace, description=text, input_schema=schema), LocalBinding(tool_id)
        )
    return made


def test_everyday_words(index: InMemoryIndex) -> None:
    """A tool that does what was asked for is among the first three."""
    assert len(INTENTS) >= 40
    assert {tool_id for wanted in INTENTS.values() for tool_id in wanted.split()} <= {e.tool.id for e in index.tools()}
    found = {query: index.search(query, 3).ids() for query in INTENTS}
    assert {query: ids for query, ids in found.items() if not set(ids) & set(INTENTS[query].split())} == {}
