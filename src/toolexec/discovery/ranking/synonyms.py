"""Words that mean much the same where tools are concerned: verbs, common nouns, abbreviations."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toolexec.discovery.ranking.stems import stem

__all__ = ["PHRASES", "synonyms_of"]

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
def _table() -> dict[str, tuple[tuple[str, bool], ...]]:
    table: dict[str, dict[str, bool]] = {}
    for groups, same in ((_SAME, True), (_ALIKE, False)):
        for line in groups.split("\n"):
            group = [stem(word.replace("-", "")) for word in line.split()]
            for word in group:
                for other in group:
                    if other != word and (not same or group[0] in (word, other)):
                        table.setdefault(word, {}).setdefault(other, same)
    return {word: tuple(others.items()) for word, others in table.items()}


def synonyms_of(word: str) -> tuple[tuple[str, bool], ...]:
    """The stems that mean what a stem means: each with True when it is the same word, written shorter or longer, and
    with False when it means much the same. Empty when none is known."""
    return _table().get(word, ())
