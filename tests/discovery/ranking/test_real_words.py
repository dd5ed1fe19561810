"""Real words are left alone, and misspelt ones are corrected."""

from __future__ import annotations

import pytest

from toolexec.discovery import BM25Searcher
from toolexec.discovery.ranking.english import COMMON, frequency
from toolexec.discovery.ranking.spelling import distance
from toolexec.discovery.semantic import EmbeddingSearcher, HybridSearcher
from toolexec.model import Tool

REAL = """
gold:golf weather:whether golf:gold whether:weather house:mouse love:live heart:hear police:policy fire:file
water:later death:depth light:right food:foot game:name mind:find wish:with table:label mother:other boss:bots
shot:show kids:kinds black:block died:tied married:carrier thought:bought train:rain building:billing feeling:meeting
power:lower promise:profile true:tree safe:save wear:weak trouble:double morning:warning boys:bots poor:pool
suppose:support perfect:percent sick:tick realize:resize sweet:sheet ride:side imagine:image mine:mime dear:deal
hair:pair miles:files eight:height cold:hold land:hand strange:storage smell:small dark:mark feet:meet hide:side
bunch:lunch sing:song cool:pool stole:store king:kind tough:rough fast:past pain:pair medical:media brain:rain
luck:lock drug:drag rock:lock sleeping:keeping clothes:closes court:count mouth:month film:file peace:place
fair:pair admit:admin biggest:digest ball:bill remain:retain pretend:present dress:press quit:quiet glass:class
driving:arriving wild:wind roll:role suspect:suspend cash:case hole:role grand:grant pray:play planet:plane
captain:certain wash:hash race:grace patient:payment fellow:follow truck:track seat:sent avoid:void
drove:drive skin:skip training:tracking wine:wind soldiers:folders shame:same chicken:checked lift:list moon:noon
former:format heat:head giant:grant bright:right shoes:shows park:mark laid:said teacher:weather bite:site
jail:tail paint:point river:driver treated:related band:bank dogs:docs crack:track purge:purse hire:here neck:nick
nuclear:clear decent:recent leader:reader mountain:contain meat:mean trade:trace storm:story despite:dispute
camp:came sword:word soft:sort insurance:instance younger:longer naked:named punch:lunch plant:plane
hunting:running stone:store spell:sell rent:sent ghost:host threat:thread trapped:tracked beach:each
flat:flag bell:tell wound:found monster:monitor rare:rate wide:side defense:defines soldier:folder billion:billing
contract:contact launch:lunch shirt:shift rush:push crash:trash bone:gone tall:talk chances:channel prince:price
test:text shape:share mood:good pity:city snow:show clock:click tour:hour option:opinion prevent:event
wave:save roof:room bread:read victory:history boring:bring grave:grace fuel:full dust:must lips:tips coat:chat
pride:price tend:send meal:mean cake:case silence:science shock:stock bags:tags plate:plane loyal:local
wire:fire nation:notion flower:lower rings:brings sports:ports moral:model monkey:money iron:icon
bullets:buckets warrant:variant bike:like pink:ping estate:state slave:save creatures:features cancer:cancel
sand:send prime:price rose:role influence:confluence wood:word odds:adds demon:daemon pills:polls honey:money
witch:switch orange:range chick:click rice:price debit:debt loan:load orders:borders tank:talk lake:like trail:tail
bath:batch eternal:external motion:notion bend:send cheat:chat century:entry coast:cost advise:advice town:torn
custody:custom attitude:latitude march:match lawyers:layers heal:deal martial:partial palace:place beef:been
elevator:elevation dawn:down sink:link rude:rule charity:chart pitch:patch lean:mean wing:wind shop:chop
tower:lower county:country musical:music smash:stash dish:disk cave:case culture:future cock:lock hack:back
"""
"""Words, each with one that a tool has and that is written nearly like it."""

MISSPELT = """
recieve:receive adress:address calender:calendar chanel:channel mesage:message massege:message isue:issue isseu:issue
repositry:repository repositroy:repository reposotory:repository brnach:branch brnch:branch comit:commit commmit:commit
pul:pull reqest:request requst:request serach:search seach:search updat:update udpate:update delte:delete delet:delete
craete:create creat:create custmer:customer paymnet:payment payement:payment invocie:invoice
invioce:invoice subscripton:subscription reciept:receipt ballance:balance balence:balance transacton:transaction
tranlsate:translate translte:translate langauge:language lenguage:language wether:weather weahter:weather
forcast:forecast temprature:temperature temperture:temperature shedule:schedule schedual:schedule meetng:meeting
meating:meeting appointmnet:appointment remnider:reminder remider:reminder atachment:attachment attachement:attachment
emial:email docment:document documnet:document fodler:folder foldr:folder direcotry:directory
directry:directory flie:file filse:files downlaod:download donwload:download uplaod:upload uploda:upload
databse:database datbase:database qurey:query querry:query colum:column tabel:table reccord:record recrod:record
usre:user pasword:password passwrod:password acount:account accout:account permision:permission permisson:permission
privleges:privileges autherize:authorize authentification:authentication securty:security conection:connection
conect:connect netwrok:network sever:server srever:server contianer:container containr:container deploymnet:deployment
depoly:deploy relase:release verison:version vesrion:version biuld:build bulid:build pakage:package packge:package
libary:library libraray:library functoin:function fucntion:function paramter:parameter paramater:parameter
varaible:variable arguement:argument enviroment:environment enviornment:environment seperate:separate
definately:definitely occured:occurred occurence:occurrence neccessary:necessary sucess:success succesful:successful
begining:beginning untill:until wierd:weird freind:friend beleive:believe acheive:achieve existance:existence
maintenence:maintenance maintanance:maintenance recomend:recommend recommand:recommend recomendation:recommendation
refered:referred prefered:preferred transfered:transferred cancelation:cancellation comittee:committee
occassion:occasion accomodation:accommodation acommodation:accommodation restaraunt:restaurant resturant:restaurant
hotle:hotel fligth:flight flgiht:flight airpot:airport tikcet:ticket tickt:ticket resevation:reservation
reservaton:reservation locaton:location loaction:location adresses:addresses contry:country goverment:government
buisness:business bussiness:business comapny:company compnay:company employe:employee manger:manager maneger:manager
projcet:project porject:project taks:task tsak:task priorty:priority prioritiy:priority assing:assign asignee:assignee
coment:comment commnet:comment notfication:notification notificaton:notification alret:alert wraning:warning
eror:error errror:error exeption:exception excpetion:exception anlysis:analysis analisys:analysis statistcs:statistics
statsitics:statistics dashbord:dashboard dahsboard:dashboard repot:report reprot:report chrat:chart grpah:graph
imgae:image iamge:image pictrue:picture picure:picture vidoe:video vdieo:video musci:music playlsit:playlist
albm:album artits:artist lyircs:lyrics screnshot:screenshot screenshto:screenshot broswer:browser browswer:browser
navgiate:navigate naviagte:navigate clik:click buton:button subimt:submit sumbit:submit webiste:website wesbite:website
condtion:condition condiiton:condition gatway:gateway gatewya:gateway clsuter:cluster namepsace:namespace
namspace:namespace ingess:ingress volumne:volume voulme:volume snaphsot:snapshot snapshto:snapshot bakcup:backup
bucktes:buckets encrpytion:encryption encription:encryption certifcate:certificate certficate:certificate
colaborator:collaborator collabrator:collaborator converstaion:conversation conversaton:conversation reacion:reaction
mileston:milestone milstone:milestone sumary:summary summry:summary spreadsheat:spreadsheet spredsheet:spreadsheet
presenation:presentation presentaion:presentation signiture:signature signture:signature contcat:contact conatct:contact
"""
"""Misspelt words, each with what is meant."""


def pairs(text: str) -> list[list[str]]:
    """The pairs in a list of them."""
    return [pair.split(":") for pair in text.split()]


def searcher(*names: str) -> BM25Searcher:
    """A searcher that knows tools of these names."""
    made = BM25Searcher()
    for name in names:
        made.add(Tool(name=name, input_schema=True))
    return made


def test_the_lists_are_long_enough() -> None:
    """Each has 200 pairs of words that are at most two letters apart."""
    assert len({word for word, _ in pairs(REAL)}) >= 200
    assert len({word for word, _ in pairs(MISSPELT)}) >= 200
    assert all(0 < distance(word, known, 2) <= 2 for word, known in pairs(REAL))


def test_a_real_word_is_not_corrected() -> None:
    """Nothing is found in its place, and what is written like it is only suggested."""
    found = {word: searcher(known).search(word, 5) for word, known in pairs(REAL)}
    assert {word: [hit.tool_id for hit in hits] for word, hits in found.items() if hits} == {}
    for word, known in pairs(REAL):
        meant = found[word].did_you_mean
        assert meant in (None, known)
        assert found[word].note == f"no tool has {word!r}" + ("" if meant else ", nor a word like it")
    assert sum(hits.did_you_mean is not None for hits in found.values()) > 200


def test_a_misspelt_word_is_corrected() -> None:
    """The tool is found, among tools of all the other words."""
    made = searcher(*dict.fromkeys(known for _, known in pairs(MISSPELT)))
    found = {word: [hit.tool_id for hit in made.search(word, 3)] for word, _ in pairs(MISSPELT)}
    assert {word: found[word] for word, known in pairs(MISSPELT) if known not in found[word]} == {}


def test_a_real_word_beside_known_ones() -> None:
    """The matches of the other words are the answer, and nothing is suggested."""
    made = searcher("book_golf_course", "get_whether_report", "list_prices")
    hits = made.search("gold prices", 5)
    assert [hit.tool_id for hit in hits] == ["list_prices"]
    assert hits.did_you_mean is None
    assert made.search("gold", 5).did_you_mean == "golf"
    assert made.search("weather", 5).did_you_mean == "whether"


def test_real_words_are_not_taken_apart_or_for_short_forms() -> None:
    """Unless their parts are words of four letters or more, as in `filename`."""
    made = searcher("rent_car", "feed_pet", "migrate", "read_file", "set_name")
    assert made.search("carpet", 5) == []
    assert made.search("mate", 5) == []
    assert {hit.tool_id for hit in made.search("filename", 5)} == {"read_file", "set_name"}


def test_a_rare_word_is_a_slip() -> None:
    """A word that is much rarer than one a letter from it was hardly meant."""
    assert 0 < frequency("calender") < COMMON < frequency("calendar")
    assert searcher("calendar").search("calender", 1).did_you_mean == "calendar"


@pytest.mark.parametrize("word", ["the", "website", "github", "gold", "gmail", "zoom"])
def test_words_and_names_are_known(word: str) -> None:
    """English words have a frequency, and so have names of products."""
    assert frequency(word) >= COMMON


@pytest.mark.parametrize("word", ["", "gol", "weathe", "x1", "über", "qqqqqq", "recieve", "gold\n", "goldU", "\ngold"])
def test_other_strings_are_no_words(word: str) -> None:
    """Beginnings of words are none, nor is anything that only looks like a line of the list."""
    assert frequency(word) == 0


@pytest.mark.parametrize("query", ["gold price", "repositry isues", "website", "weather"])
def test_the_query_is_embedded_as_it_was_asked(query: str) -> None:
    """Whatever search by words corrects, search by meaning gets what the caller wrote."""
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    made = HybridSearcher(BM25Searcher(), EmbeddingSearcher(embed))
    tool = Tool(name="golf_repository_issues", description="whether", input_schema=True)
    made.add(tool)
    made.search("issues", 1)
    embedded.clear()
    made.search(query, 5)
    assert embedded == [query]
    embedded.clear()
    made.explain(query, tool.id)
    assert [text for text in embedded if text != query] == []
    made.close()
