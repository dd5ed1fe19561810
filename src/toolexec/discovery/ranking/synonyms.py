"""Words that mean much the same where tools are concerned: verbs, common nouns, abbreviations."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toolexec.discovery.ranking.stems import stem

_SAME: Final = """
account acct
address addr
administrator admin
analyze analyse
application app
argument arg
attribute attr
authentication authn
authorization authz authorisation
average avg
building bldg
button btn
calendar cal
category cat
certificate cert
command cmd
comment cmt
company co
configuration config cfg conf
continuous ci
count cnt
customer cust
database db
delete del
department dept
description desc
destination dest dst
development dev
directory dir
document doc
email mail e-mail
employee emp
environment env
error err
execute exec
expression expr
extension ext
feature feat
function func fn
generate gen
group grp
identifier id
image img pic
import imp
information info
initialize initialise init
instance inst
internationalization i18n
invoice inv
issue iss
kubernetes k8s
label lbl
language lang
library lib
license licence
localize localise
localization l10n
location loc
management mgmt mgt
manager mgr
maximum max
meeting mtg
memory mem
message msg
metadata meta
minimum min
minute min
month mo
namespace ns
notification notif
number num no
object obj
operation op
option opt
organization organisation org
package pkg
page pg
parameter param
password pwd passwd pw
payment pmt
permission perm
person people
phone ph tel
picture pic
previous prev
process proc
product prod
production prod
project proj
quantity qty
query qry
receipt rcpt
record rec
reference ref
repository repo
request req
response resp res
schedule sched
secret sec
sequence seq
server srv svr
service svc
session sess
source src
specification spec
standard std
statistics stats
string str
subscription sub
subscriber sub
summarize summarise
synchronize synchronise sync
table tbl
technology tech
telephone tel
temperature temp
temporary temp tmp
template tmpl tpl
text txt
ticket tkt
todo to-do
transaction txn tx
update upd
user usr
utility util
value val
variable var
version ver
video vid
virtual vm
volume vol
"""
"""Long and short forms, and two spellings, of a word."""

_ALIKE: Final = """
get fetch read retrieve load show view display see
show list display view print
list enumerate browse index show
search find query lookup locate filter
create add new make insert generate open register build
create compose draft write
create start begin
create arrange schedule book
write save store put
save like favorite favourite star bookmark
update edit modify change patch set alter adjust
set put assign
rename name
delete remove destroy erase drop purge trash discard clear
remove kick
send deliver dispatch submit post email message
post publish write
export download dump save
import upload ingest load
upload attach put
approve accept confirm
reject decline deny refuse
archive retire
restore recover undelete
schedule plan book
book reserve
cancel abort stop terminate
stop halt terminate kill end shutdown
start launch begin run trigger boot resume
run execute invoke call launch trigger
trigger raise create
restart reboot reload
sync mirror replicate
validate check verify test
convert transform
merge combine join
split divide
assign allocate give delegate
unassign unset
notify alert tell inform ping remind
analyze inspect profile examine
summarize condense digest
deploy release rollout ship
rollback revert undo
monitor watch track observe
encrypt seal
compress shrink zip pack
decompress unzip extract unpack
translate localize
copy duplicate clone
move transfer relocate
enable activate
disable deactivate
invite add
join enter subscribe
leave exit quit unsubscribe
lock freeze
unlock unfreeze
grant allow permit authorize
revoke withdraw
block ban
mute silence
hide conceal
pay charge bill
refund reimburse repay
buy purchase order
close resolve finish complete
reopen open
reply respond answer comment
comment remark annotate
follow subscribe watch
count number total
compare diff
visit navigate open go
press click tap
pause stop
skip next
message chat dm
picture image photo
video clip
folder directory
file document
login authenticate signin
auth authentication authorization login
customer client
user member person account
company business organization
team group
channel room
meeting appointment event
task todo item
issue ticket bug
ticket case
bug defect error
error exception failure
log trace
payment transaction
invoice bill
price cost amount
product item article
cart basket
employee staff worker
job task
secret credential
key token
permission right access
label tag
notification alert
note memo
weather forecast
website site
metric stat measurement
song track music
playlist list
server host
instance machine vm
container docker
pull pr
merge mr
sheet spreadsheet
location place
record row entry
query sql
webhook hook
conversation thread chat
page site
email mail
history log
owner author
"""
"""Words that mean much the same of tools, the first the most usual."""

_EVERYDAY: Final = """
website url web page fetch http
webpage url web page fetch
site url web page
internet web url online
online web internet
http fetch url request
download fetch
link url
google search web
surf navigate url
inbox email message
gmail email
outlook email calendar
newsletter email
letter email document
text sms message
whatsapp message sms
telegram message
phone call
voicemail recording call
illustration image
artwork image
drawing image
draw image generate
paint image generate
logo image
meme image gif
selfie photo image
screen screenshot
snapshot screenshot image
aloud speech voice
speak speech voice
voice speech audio
dictation transcribe audio
dictate transcribe audio
transcribe transcript
podcast audio episode
recording audio
movie video film
film video movie
youtube video
clip video
subtitle transcript caption
caption transcript subtitle
tune music song track
listen play audio
album music track
band artist music
rain weather forecast
snow weather forecast
sunny weather forecast
storm weather alert
wind weather forecast
climate temperature weather
clock time
hour time
timezone time
route direction map
road direction route
drive direction route
directions route map
nearby near location place
address location geocode
gps location coordinate
restaurant place business
cafe place business
store place business
hotel listing accommodation booking place
stay listing hotel accommodation
accommodation listing hotel
apartment listing
trip flight hotel travel
travel flight hotel trip
vacation flight hotel
plane flight
fly flight
airline flight
airport flight
taxi ride
stock quote ticker share
share stock quote
ticker stock quote
exchange currency convert
rate currency
dollar currency amount
euro currency amount
money payment balance currency
cash payment balance
bank account balance transaction
salary payroll payment
tip payment
shopping cart order product
parcel shipment order tracking
package shipment
lamp light
bulb light
heating thermostat temperature
heater thermostat temperature
thermostat temperature
agenda calendar event
diary calendar event note
birthday calendar event contact
deadline due date
alarm reminder timer
timer reminder
chore task todo
errand task todo
remember memory store observation note
remind reminder
recall memory search
forget delete
jot note append
scribble note
journal note article paper
excel spreadsheet sheet workbook
spreadsheet sheet workbook
csv spreadsheet table
workbook spreadsheet sheet
powerpoint presentation slide
slide presentation
deck presentation slide
math calculate expression
arithmetic calculate
sum calculate add
calculator calculate
percentage calculate
encyclopedia wikipedia article
fact wikipedia search
definition define dictionary
meaning define dictionary
research paper search
study paper
science paper
thesis paper
literature paper
colleague contact person people user
friend contact person people
phonebook contact people
contact people person
address contact location
sql database query
french translate language
german translate language
spanish translate language
english translate language
chinese translate language
japanese translate language
italian translate language
language translate
headline news article
world news
happened news event
newspaper news article
password credential secret
spam email
crash error exception
broken error bug
stacktrace error exception
outage incident
oncall incident schedule
pager incident
cluster kubernetes
diagram chart image
graph chart
plot chart
survey form
questionnaire form
signature sign document
contract document
scan document
resume document
vacancy job
hire candidate job
recipe meal food
medicine drug medication
doctor appointment
workout exercise activity
"""
"""Everyday words and brands, each with words that tools use for what is meant; they do not stand for it in turn."""

PHRASES: Final[dict[str, str]] = {
    "back up": "backup",
    "bring back": "restore",
    "call off": "cancel",
    "check out": "checkout",
    "clean up": "delete",
    "cut off": "disable",
    "find out": "get",
    "fill in": "update",
    "get back": "restore",
    "get rid": "delete",
    "hand over": "assign",
    "kick off": "start",
    "kick out": "remove",
    "log in": "login",
    "log out": "logout",
    "look for": "search",
    "look up": "search",
    "pay back": "refund",
    "put together": "create",
    "roll back": "rollback",
    "send back": "return",
    "set off": "start",
    "set up": "create",
    "shut down": "stop",
    "sign in": "login",
    "sign up": "register",
    "spin up": "create",
    "switch off": "disable",
    "switch on": "enable",
    "take away": "remove",
    "take down": "delete",
    "take off": "remove",
    "throw away": "delete",
    "throw out": "delete",
    "tear down": "delete",
    "turn down": "reject",
    "turn off": "disable",
    "turn on": "enable",
    "write down": "create",
    "throw off": "remove",
}
"""A verb and a small word that together say what another verb says."""


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, bool]]:
    table: dict[str, dict[str, bool]] = {}
    for groups, same in ((_SAME, True), (_ALIKE, False)):
        for line in groups.split("\n"):
            group = [stem(word.replace("-", "")) for word in line.split()]
            for word in group:
                known = table.setdefault(word, {})
                for other in group if not same or word == group[0] else group[:1]:
                    if other != word:
                        known.setdefault(other, same)
    for line in _EVERYDAY.split("\n"):
        word, *others = [stem(word) for word in line.split()] or [""]
        for other in others:
            if other != word:
                table.setdefault(word, {}).setdefault(other, False)
    return table


def synonyms_of(word: str) -> tuple[tuple[str, bool], ...]:
    """Return the stems that mean what a stem means: each with True when it is the same word, written shorter or longer,
    and with False when it means much the same. Empty when none is known."""
    known = _table().get(word)
    return tuple(known.items()) if known else ()
