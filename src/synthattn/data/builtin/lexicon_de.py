"""English and German words with the forms that the grammar needs, written for this project.

The tables are text, one word per line, so that they can be read and extended like a dictionary. Kinds are plain words
that say what a noun can be: a verb or an adjective names the kinds it goes with, so that people are not eaten.
"""

from dataclasses import dataclass, field
from typing import Literal

Gender = Literal["m", "f", "n"]
Frame = Literal["intransitive", "acc", "dat", "give", "explain", "prep", "motion", "position", "placing"]


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages; a mass noun has no plural."""

    de: str
    gender: Gender
    de_plural: str | None
    en: str
    en_plural: str
    kinds: frozenset[str]
    weak: str = ""
    """The ending of every case but the nominative singular, for nouns such as ``Junge`` and ``Student``."""
    genitive: str = ""
    """The genitive singular, where it differs from the base form."""

    @property
    def mass(self) -> bool:
        return self.de_plural is None


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective: ``stem`` takes endings (``teur``), ``de`` stands alone (``teuer``)."""

    de: str
    stem: str
    de_more: str
    en: str
    en_more: str
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in both languages. ``infinitive``, ``third`` and ``participle`` are without the separable prefix."""

    infinitive: str
    third: str
    participle: str
    aux: Literal["haben", "sein"]
    en: str
    en_past: str
    en_participle: str
    frame: Frame
    subjects: frozenset[str]
    objects: frozenset[str]
    prefix: str = ""
    particle: str = ""
    """English ``up`` in ``tidy up``; it stands after a pronoun and before other objects."""
    en_prep: str = ""
    de_prep: str = ""
    de_case: Literal["acc", "dat"] = "acc"
    stative: bool = False
    first: str = ""
    second: str = ""
    past: str = ""
    """The simple past, for the verbs that have it in place of the perfect in spoken German: sein, haben."""

    @property
    def whole(self) -> str:
        """The infinitive as a dictionary has it."""
        return self.prefix + self.infinitive


@dataclass(frozen=True, slots=True)
class Place:
    """A noun with its prepositions, English and German, for being there and for going there."""

    noun: Noun
    at: tuple[str, str]
    to: tuple[str, str, Literal["acc", "dat"]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A fixed expression in both languages."""

    en: str
    de: str
    starts: bool = field(default=True)
    """Whether it can open a sentence."""


def _rows(table: str) -> list[list[str]]:
    """The fields of each line; a field is itself a list of words, still joined."""
    return [[part.strip() for part in line.split("|")] for line in table.strip().splitlines()]


def _english_plural(noun: str) -> str:
    if noun.endswith(("s", "sh", "ch", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


# German, gender, plural (- for mass nouns), genitive (= as the base form; weak:n for weak nouns) | English | kinds.
_NOUNS = """
Mann m Männer Mannes | man/men | person
Frau f Frauen = | woman/women | person
Kind n Kinder Kindes | child/children | person child
Junge m Jungen weak:n | boy | person
Mädchen n Mädchen Mädchens | girl | person child
Vater m Väter Vaters | father | person kin parent
Mutter f Mütter = | mother | person kin parent
Bruder m Brüder Bruders | brother | person kin
Schwester f Schwestern = | sister | person kin
Onkel m Onkel Onkels | uncle | person kin
Tante f Tanten = | aunt | person kin
Großvater m Großväter Großvaters | grandfather | person kin
Großmutter f Großmütter = | grandmother | person kin
Sohn m Söhne Sohnes | son | person kin
Tochter f Töchter = | daughter | person kin
Freund m Freunde Freundes | friend | person kin
Nachbar m Nachbarn weak:n | neighbor | person
Lehrer m Lehrer Lehrers | teacher | person
Schüler m Schüler Schülers | pupil | person
Student m Studenten weak:en | student | person
Arzt m Ärzte Arztes | doctor | person
Polizist m Polizisten weak:en | policeman/policemen | person
Koch m Köche Kochs | chef | person
Bauer m Bauern weak:n | farmer | person
Gast m Gäste Gastes | guest | person
Kollege m Kollegen weak:n | colleague | person
Kunde m Kunden weak:n | customer | person
Verkäufer m Verkäufer Verkäufers | salesman/salesmen | person
König m Könige Königs | king | person
Königin f Königinnen = | queen | person
Kellnerin f Kellnerinnen = | waitress | person
Schauspielerin f Schauspielerinnen = | actress | person
Richter m Richter Richters | judge | person
Maler m Maler Malers | painter | person
Bürgermeister m Bürgermeister Bürgermeisters | mayor | person
Ingenieur m Ingenieure Ingenieurs | engineer | person
Krankenschwester f Krankenschwestern = | nurse | person
Hund m Hunde Hundes | dog | animal pet
Katze f Katzen = | cat | animal pet
Pferd n Pferde Pferdes | horse | animal
Vogel m Vögel Vogels | bird | animal
Kuh f Kühe = | cow | animal
Maus f Mäuse = | mouse/mice | animal prey
Bär m Bären weak:en | bear | animal
Ente f Enten = | duck | animal
Huhn n Hühner Huhns | chicken | animal
Ziege f Ziegen = | goat | animal
Esel m Esel Esels | donkey | animal
Kaninchen n Kaninchen Kaninchens | rabbit | animal pet
Löwe m Löwen weak:n | lion | animal
Apfel m Äpfel Apfels | apple | food
Birne f Birnen = | pear | food
Banane f Bananen = | banana | food
Orange f Orangen = | orange | food
Kirsche f Kirschen = | cherry | food
Tomate f Tomaten = | tomato/tomatoes | food
Kartoffel f Kartoffeln = | potato/potatoes | food cookable
Ei n Eier Eis | egg | food cookable
Kuchen m Kuchen Kuchens | cake | food bakeable
Brötchen n Brötchen Brötchens | roll | food bakeable
Keks m Kekse Kekses | cookie | food bakeable
Pfannkuchen m Pfannkuchen Pfannkuchens | pancake | food
Brot n - Brots | bread | food bakeable
Käse m - Käses | cheese | food
Suppe f - = | soup | food cookable
Fleisch n - Fleischs | meat | food cookable
Reis m - Reises | rice | food cookable
Schokolade f - = | chocolate | food
Obst n - Obsts | fruit | food
Honig m - Honigs | honey | food
Wasser n - Wassers | water | drink
Milch f - = | milk | drink
Kaffee m - Kaffees | coffee | drink
Tee m - Tees | tea | drink
Saft m - Safts | juice | drink
Wein m - Weins | wine | drink
Limonade f - = | lemonade | drink
Buch n Bücher Buches | book | text lies portable
Zeitung f Zeitungen = | newspaper | text lies portable
Zeitschrift f Zeitschriften = | magazine | text lies portable
Brief m Briefe Briefes | letter | text written lies portable sealed
Roman m Romane Romans | novel | text written
Gedicht n Gedichte Gedichts | poem | text written taught
Artikel m Artikel Artikels | article | text written
Bericht m Berichte Berichts | report | text written taught
Märchen n Märchen Märchens | fairy tale | text story
Geschichte f Geschichten = | story | text written story
Postkarte f Postkarten = | postcard | text written lies portable
Witz m Witze Witzes | joke | story funny
Mantel m Mäntel Mantels | coat | clothing lies
Hut m Hüte Hutes | hat | clothing lies
Kleid n Kleider Kleides | dress | clothing lies
Hemd n Hemden Hemdes | shirt | clothing lies
Jacke f Jacken = | jacket | clothing lies
Rock m Röcke Rocks | skirt | clothing lies
Schal m Schals Schals | scarf/scarves | clothing lies
Mütze f Mützen = | cap | clothing lies
Pullover m Pullover Pullovers | sweater | clothing lies
Lampe f Lampen = | lamp | thing electric repairable stands
Uhr f Uhren = | clock | thing repairable stands
Computer m Computer Computers | computer | thing electric repairable stands
Radio n Radios Radios | radio | thing electric repairable stands
Telefon n Telefone Telefons | telephone | thing repairable stands
Kamera f Kameras = | camera | thing repairable portable lies
Schlüssel m Schlüssel Schlüssels | key | thing portable lies
Tasche f Taschen = | bag | thing portable stands openable
Koffer m Koffer Koffers | suitcase | thing portable stands openable lockable
Flasche f Flaschen = | bottle | thing stands openable
Tasse f Tassen = | cup | thing stands
Teller m Teller Tellers | plate | thing stands
Messer n Messer Messers | knife/knives | thing lies
Gabel f Gabeln = | fork | thing lies
Löffel m Löffel Löffels | spoon | thing lies
Bild n Bilder Bildes | picture | thing hangs
Spiegel m Spiegel Spiegels | mirror | thing hangs
Ball m Bälle Balles | ball | thing toy portable
Puppe f Puppen = | doll | thing toy portable
Geschenk n Geschenke Geschenks | gift | thing portable lies
Regenschirm m Regenschirme Regenschirms | umbrella | thing portable lies
Korb m Körbe Korbes | basket | thing stands
Vase f Vasen = | vase | thing stands
Teppich m Teppiche Teppichs | carpet | thing
Decke f Decken = | blanket | thing lies
Kissen n Kissen Kissens | pillow | thing lies
Schachtel f Schachteln = | box | thing stands openable
Ring m Ringe Ringes | ring | thing portable lies
Kerze f Kerzen = | candle | thing stands
Bleistift m Bleistifte Bleistifts | pencil | thing portable lies
Gitarre f Gitarren = | guitar | thing repairable
Geige f Geigen = | violin | thing repairable
Tisch m Tische Tisches | table | thing furniture
Stuhl m Stühle Stuhls | chair | thing furniture seat repairable
Bett n Betten Bettes | bed | thing furniture
Sofa n Sofas Sofas | sofa | thing furniture seat
Schrank m Schränke Schranks | cupboard | thing furniture openable lockable
Regal n Regale Regals | shelf/shelves | thing furniture
Bank f Bänke = | bench | thing furniture seat
Sessel m Sessel Sessels | armchair | thing furniture
Auto n Autos Autos | car | vehicle private repairable lockable
Fahrrad n Fahrräder Fahrrads | bicycle | vehicle private repairable
Motorrad n Motorräder Motorrads | motorcycle | vehicle private repairable
Boot n Boote Bootes | boat | vehicle private repairable built
Zug m Züge Zuges | train | vehicle public
Bus m Busse Busses | bus | vehicle public
Schiff n Schiffe Schiffes | ship | vehicle public built
Straßenbahn f Straßenbahnen = | tram | vehicle public
Fenster n Fenster Fensters | window | openable fixture
Tür f Türen = | door | openable lockable fixture
Tor n Tore Tores | gate | openable lockable fixture
Baum m Bäume Baumes | tree | nature
Blume f Blumen = | flower | nature gift
Haus n Häuser Hauses | house | place building built lockable home
Wohnung f Wohnungen = | apartment | place building home tidied
Küche f Küchen = | kitchen | place tidied
Zimmer n Zimmer Zimmers | room | place tidied
Keller m Keller Kellers | basement | place tidied
Garten m Gärten Gartens | garden | place
Schule f Schulen = | school | place building
Büro n Büros Büros | office | place tidied
Park m Parks Parks | park | place sight
Bahnhof m Bahnhöfe Bahnhofs | station | place building
Markt m Märkte Marktes | market | place
Strand m Strände Strandes | beach | place
Stadt f Städte = | city | place sight home
Dorf n Dörfer Dorfes | village | place sight home
Kirche f Kirchen = | church | place building sight
Museum n Museen Museums | museum | place building sight
Theater n Theater Theaters | theater | place building sight
Bibliothek f Bibliotheken = | library | place building
Restaurant n Restaurants Restaurants | restaurant | place building
Hotel n Hotels Hotels | hotel | place building
Krankenhaus n Krankenhäuser Krankenhauses | hospital | place building
Schloss n Schlösser Schlosses | castle | place building sight high
Fabrik f Fabriken = | factory | place building
Bäckerei f Bäckereien = | bakery | place building
Wald m Wälder Waldes | forest | place
Fluss m Flüsse Flusses | river | place
See m Seen Sees | lake | place
Insel f Inseln = | island | place sight home
Brücke f Brücken = | bridge | built sight
Turm m Türme Turmes | tower | building built sight high
"""


def _noun(german: str, english: str, kinds: str) -> Noun:
    de, gender, plural, genitive = german.split()
    en, _, en_plural = english.partition("/")
    if gender not in ("m", "f", "n"):
        raise ValueError(f"{de} has the gender {gender!r}; write m, f or n")
    weak = genitive.removeprefix("weak:") if genitive.startswith("weak:") else ""
    return Noun(
        de,
        gender,
        None if plural == "-" else plural,
        en,
        en_plural or _english_plural(en),
        frozenset(kinds.split()),
        weak,
        "" if weak or genitive == "=" else genitive,
    )


NOUNS: tuple[Noun, ...] = tuple(_noun(*row) for row in _rows(_NOUNS))
_BY_NAME = {noun.de: noun for noun in NOUNS}

# German, stem if it differs, comparative | English, comparative | kinds.
_ADJECTIVES = """
alt alt älter | old older | person animal thing vehicle building clothing text fixture
neu neu neuer | new newer | thing vehicle building clothing text fixture
groß groß größer | big bigger | animal thing vehicle place building nature fixture
klein klein kleiner | small smaller | animal thing vehicle place building nature child fixture
schön schön schöner | beautiful more_beautiful | animal thing place building clothing nature gift
jung jung jünger | young younger | person animal
freundlich freundlich freundlicher | friendly friendlier | person pet
müde müd müder | tired more_tired | person animal
hungrig hungrig hungriger | hungry hungrier | person animal
klug klug klüger | smart smarter | person pet
nett nett netter | nice nicer | person
fleißig fleißig fleißiger | hard-working more_hard-working | person
faul faul fauler | lazy lazier | person pet
stark stark stärker | strong stronger | person animal
krank krank kränker | sick sicker | person animal
reich reich reicher | rich richer | person
arm arm ärmer | poor poorer | person
glücklich glücklich glücklicher | happy happier | person
traurig traurig trauriger | sad sadder | person
berühmt berühmt berühmter | famous more_famous | person sight
nervös nervös nervöser | nervous more_nervous | person
ehrlich ehrlich ehrlicher | honest more_honest | person
vorsichtig vorsichtig vorsichtiger | careful more_careful | person
rot rot roter | red redder | thing clothing vehicle
blau blau blauer | blue bluer | thing clothing vehicle
grün grün grüner | green greener | thing clothing vehicle
gelb gelb gelber | yellow yellower | thing clothing vehicle
weiß weiß weißer | white whiter | thing clothing pet
schwarz schwarz schwärzer | black blacker | thing clothing vehicle pet
braun braun brauner | brown browner | thing clothing animal
grau grau grauer | gray grayer | thing clothing animal
teuer teur teurer | expensive more_expensive | thing clothing private food drink
billig billig billiger | cheap cheaper | thing clothing private food
schwer schwer schwerer | heavy heavier | thing fixture
leicht leicht leichter | light lighter | portable
sauber sauber sauberer | clean cleaner | thing clothing private tidied
schmutzig schmutzig schmutziger | dirty dirtier | thing clothing private tidied fixture
warm warm wärmer | warm warmer | clothing drink cookable
kalt kalt kälter | cold colder | drink
heiß heiß heißer | hot hotter | drink cookable
frisch frisch frischer | fresh fresher | food
süß süß süßer | sweet sweeter | food
lecker lecker leckerer | tasty tastier | food
schnell schnell schneller | fast faster | vehicle
langsam langsam langsamer | slow slower | vehicle
interessant interessant interessanter | interesting more_interesting | text sight story
langweilig langweilig langweiliger | boring more_boring | text story
lang lang länger | long longer | text clothing story
kurz kurz kürzer | short shorter | text story
spannend spannend spannender | exciting more_exciting | text story
lustig lustig lustiger | funny funnier | text story person
modern modern moderner | modern more_modern | building electric vehicle
ruhig ruhig ruhiger | quiet quieter | home person
hoch hoh höher | tall taller | nature high
dunkel dunkl dunkler | dark darker | tidied clothing
"""

# They describe a state that explains what somebody does or does not do.
STATES = ("müde", "hungrig", "krank", "glücklich", "traurig", "nervös", "faul", "fleißig", "vorsichtig")

ADJECTIVES: tuple[Adjective, ...] = tuple(
    Adjective(*german.split(), *(word.replace("_", " ") for word in english.split()), kinds=frozenset(kinds.split()))
    for german, english, kinds in _rows(_ADJECTIVES)
)

# German: prefix|infinitive, third person, participle, auxiliary | English: base, past, participle, +particle,
# @preposition | frame | kinds of subjects | kinds of objects | preposition and case, other options.
_VERBS = """
lesen liest gelesen haben | read read read | acc | person | text |
schreiben schreibt geschrieben haben | write wrote written | acc | person | written |
kaufen kauft gekauft haben | buy bought bought | acc | person | thing clothing private food drink portable |
verkaufen verkauft verkauft haben | sell sold sold | acc | person | thing clothing private food drink |
sehen sieht gesehen haben | see saw seen | acc | person animal | person animal thing vehicle building nature |
suchen sucht gesucht haben | look looked looked @for | acc | person | portable clothing pet person electric |
finden findet gefunden haben | find found found | acc | person | portable clothing pet electric |
essen isst gegessen haben | eat ate eaten | acc | person | food |
trinken trinkt getrunken haben | drink drank drunk | acc | person | drink |
brauchen braucht gebraucht haben | need needed needed | acc | person | thing private clothing | stative
holen holt geholt haben | fetch fetched fetched | acc | person | portable clothing drink |
tragen trägt getragen haben | wear wore worn | acc | person | clothing |
waschen wäscht gewaschen haben | wash washed washed | acc | person | clothing private pet |
putzen putzt geputzt haben | clean cleaned cleaned | acc | person | tidied furniture |
reparieren repariert repariert haben | repair repaired repaired | acc | person | repairable |
öffnen öffnet geöffnet haben | open opened opened | acc | person | openable sealed |
bauen baut gebaut haben | build built built | acc | person | built |
zeichnen zeichnet gezeichnet haben | draw drew drawn | acc | person | animal nature building vehicle |
kochen kocht gekocht haben | cook cooked cooked | acc | person | cookable |
backen backt gebacken haben | bake baked baked | acc | person | bakeable |
schneiden schneidet geschnitten haben | cut cut cut | acc | person | food |
besuchen besucht besucht haben | visit visited visited | acc | person | person sight |
kennen kennt gekannt haben | know knew known | acc | person | person sight | stative
lieben liebt geliebt haben | love loved loved | acc | person | person pet sight | stative
hören hört gehört haben | hear heard heard | acc | person animal | person animal public |
treffen trifft getroffen haben | meet met met | acc | person | person |
füttern füttert gefüttert haben | feed fed fed | acc | person | animal |
fotografieren fotografiert fotografiert haben | photograph photographed photographed | acc | person | animal sight |
vergessen vergisst vergessen haben | forget forgot forgotten | acc | person | portable clothing |
verlieren verliert verloren haben | lose lost lost | acc | person | portable clothing |
beobachten beobachtet beobachtet haben | watch watched watched | acc | person animal | person animal |
stehlen stiehlt gestohlen haben | steal stole stolen | acc | person | portable private clothing |
verstehen versteht verstanden haben | understand understood understood | acc | person | person text story | stative
rufen ruft gerufen haben | call called called | acc | person | person pet |
benutzen benutzt benutzt haben | use used used | acc | person | electric private |
nehmen nimmt genommen haben | take took taken | acc | person | portable |
fangen fängt gefangen haben | catch caught caught | acc | person animal | prey |
haben hat gehabt haben | have had had | acc | person | thing private pet clothing | stative second:hast past:hatte
an|rufen ruft gerufen haben | phone phoned phoned | acc | person | person |
ein|laden lädt geladen haben | invite invited invited | acc | person | person |
zu|machen macht gemacht haben | close closed closed | acc | person | openable |
ab|schließen schließt geschlossen haben | lock locked locked | acc | person | lockable |
an|ziehen zieht gezogen haben | put put put +on | acc | person | clothing |
aus|ziehen zieht gezogen haben | take took taken +off | acc | person | clothing |
mit|bringen bringt gebracht haben | bring brought brought +along | acc | person | portable food drink |
ab|holen holt geholt haben | pick picked picked +up | acc | person | person |
auf|räumen räumt geräumt haben | tidy tidied tidied +up | acc | person | tidied |
aus|schalten schaltet geschaltet haben | turn turned turned +off | acc | person | electric |
ein|schalten schaltet geschaltet haben | turn turned turned +on | acc | person | electric |
auf|hängen hängt gehängt haben | hang hung hung +up | acc | person | hangs |
ein|packen packt gepackt haben | pack packed packed | acc | person | portable clothing |
weg|werfen wirft geworfen haben | throw threw thrown +away | acc | person | thing clothing |
auf|essen isst gegessen haben | eat ate eaten +up | acc | person animal | food |
auf|wecken weckt geweckt haben | wake woke woken +up | acc | person | person pet |
auf|stehen steht gestanden sein | get got gotten +up | intransitive | person | |
an|kommen kommt gekommen sein | arrive arrived arrived | intransitive | person public | |
ab|fahren fährt gefahren sein | depart departed departed | intransitive | public | |
ein|schlafen schläft geschlafen sein | fall fell fallen +asleep | intransitive | person animal | |
weg|laufen läuft gelaufen sein | run ran run +away | intransitive | person animal | |
zurück|kommen kommt gekommen sein | come came come +back | intransitive | person | |
aus|gehen geht gegangen sein | go went gone +out | intransitive | person | |
fern|sehen sieht gesehen haben | watch watched watched +television | intransitive | person | |
ein|kaufen kauft gekauft haben | go went gone +shopping | intransitive | person | |
schlafen schläft geschlafen haben | sleep slept slept | intransitive | person animal | |
arbeiten arbeitet gearbeitet haben | work worked worked | intransitive | person | |
lachen lacht gelacht haben | laugh laughed laughed | intransitive | person | |
weinen weint geweint haben | cry cried cried | intransitive | person | |
tanzen tanzt getanzt haben | dance danced danced | intransitive | person | |
singen singt gesungen haben | sing sang sung | intransitive | person | |
schwimmen schwimmt geschwommen sein | swim swam swum | intransitive | person | |
spielen spielt gespielt haben | play played played | intransitive | child pet | |
lächeln lächelt gelächelt haben | smile smiled smiled | intransitive | person | | first:lächle
helfen hilft geholfen haben | help helped helped | dat | person | person |
danken dankt gedankt haben | thank thanked thanked | dat | person | person |
folgen folgt gefolgt sein | follow followed followed | dat | person animal | person animal |
antworten antwortet geantwortet haben | answer answered answered | dat | person | person |
vertrauen vertraut vertraut haben | trust trusted trusted | dat | person | person | stative
gratulieren gratuliert gratuliert haben | congratulate congratulated congratulated | dat | person | person |
zu|hören hört gehört haben | listen listened listened @to | dat | person | person |
gehören gehört gehört haben | belong belonged belonged @to | dat | portable private clothing | person | stative
geben gibt gegeben haben | give gave given | give | person | portable food drink text gift |
zeigen zeigt gezeigt haben | show showed shown | give | person | thing private clothing text building |
bringen bringt gebracht haben | bring brought brought | give | person | portable food drink clothing gift |
schicken schickt geschickt haben | send sent sent | give | person | written portable gift |
leihen leiht geliehen haben | lend lent lent | give | person | private portable text |
erzählen erzählt erzählt haben | tell told told | give | person | story |
an|bieten bietet geboten haben | offer offered offered | give | person | food drink |
erklären erklärt erklärt haben | explain explained explained | explain | person | taught story |
empfehlen empfiehlt empfohlen haben | recommend recommended recommended | explain | person | text sight |
zurück|geben gibt gegeben haben | return returned returned | explain | person | portable private text |
warten wartet gewartet haben | wait waited waited @for | prep | person animal | person public | auf acc
denken denkt gedacht haben | think thought thought @of | prep | person | person pet home | an acc
sprechen spricht gesprochen haben | speak spoke spoken @with | prep | person | person | mit dat
träumen träumt geträumt haben | dream dreamed dreamed @of | prep | person | person private home | von dat
lachen lacht gelacht haben | laugh laughed laughed @at | prep | person | person funny | über acc
spielen spielt gespielt haben | play played played @with | prep | person pet | person pet toy | mit dat
gehen geht gegangen sein | go went gone | motion | person | |
laufen läuft gelaufen sein | run ran run | motion | person animal | |
fahren fährt gefahren sein | drive drove driven | motion | person | |
reisen reist gereist sein | travel traveled traveled | motion | person | |
fliegen fliegt geflogen sein | fly flew flown | motion | person | |
wohnen wohnt gewohnt haben | live lived lived | position | person | home | stative
sitzen sitzt gesessen haben | sit sat sat | position | person pet | seat |
liegen liegt gelegen haben | lie lay lain | position | lies | furniture |
stehen steht gestanden haben | stand stood stood | position | stands | furniture |
stellen stellt gestellt haben | place placed placed | placing | person | stands | auf acc
legen legt gelegt haben | lay laid laid | placing | person | lies | auf acc
"""


def _verb(german: str, english: str, frame: str, subjects: str, objects: str, options: str) -> Verb:
    infinitive, third, participle, aux = german.split()
    prefix, _, infinitive = infinitive.rpartition("|")
    more: dict[str, str] = {}
    forms: list[str] = []
    for word in english.split():
        if word[0] in "+@":
            more["particle" if word[0] == "+" else "en_prep"] = word[1:]
        else:
            forms.append(word)
    stative = False
    for word in options.split():
        key, colon, value = word.partition(":")
        if colon:
            more[key] = value
        elif word in ("acc", "dat"):
            more["de_case"] = word
        elif word == "stative":
            stative = True
        else:
            more["de_prep"] = word
    return Verb(
        infinitive,
        third,
        participle,
        "sein" if aux == "sein" else "haben",
        *forms,
        frame=frame,  # pyright: ignore[reportArgumentType]
        subjects=frozenset(subjects.split()),
        objects=frozenset(objects.split()),
        prefix=prefix,
        stative=stative,
        **more,  # pyright: ignore[reportArgumentType]
    )


def _split_verb(row: list[str]) -> list[str]:
    """The row with its first bar put back: it parts a separable prefix, not a field."""
    return [f"{row[0]}|{row[1]}", *row[2:]] if len(row) == 7 else row


VERBS: tuple[Verb, ...] = tuple(_verb(*_split_verb(row)) for row in _rows(_VERBS))


def _plain_verb(german: str, english: str, **options: str) -> Verb:
    return _verb(german, english, "intransitive", "person", "", " ".join(f"{k}:{v}" for k, v in options.items()))


BE = _plain_verb("sein ist gewesen sein", "be was been", first="bin", second="bist", past="war")

KNOW = _plain_verb("wissen weiß gewusst haben", "know knew known", first="weiß", second="weißt")
ASK = _plain_verb("fragen fragt gefragt haben", "ask asked asked")
# Verbs before "that".
SAYING: tuple[Verb, ...] = (
    KNOW,
    _plain_verb("glauben glaubt geglaubt haben", "believe believed believed"),
    _plain_verb("sagen sagt gesagt haben", "say said said"),
    _plain_verb("hoffen hofft gehofft haben", "hope hoped hoped"),
    _plain_verb("denken denkt gedacht haben", "think thought thought"),
    _plain_verb("vergessen vergisst vergessen haben", "forget forgot forgotten"),
    _plain_verb("behaupten behauptet behauptet haben", "claim claimed claimed"),
)
# Verbs before "to" and an infinitive.
TRYING: tuple[Verb, ...] = (
    _plain_verb("versuchen versucht versucht haben", "try tried tried"),
    _plain_verb("vergessen vergisst vergessen haben", "forget forgot forgotten"),
    _plain_verb("hoffen hofft gehofft haben", "hope hoped hoped"),
    _plain_verb("planen plant geplant haben", "plan planned planned"),
    _plain_verb("versprechen verspricht versprochen haben", "promise promised promised"),
)

# Noun | being there, English and German | going there, English, German and case.
_PLACES = """
Haus | in in | into in acc
Wohnung | in in | into in acc
Küche | in in | into in acc
Zimmer | in in | into in acc
Keller | in in | into in acc
Garten | in in | into in acc
Schule | in in | to zu dat
Büro | in in | to in acc
Park | in in | to in acc
Bahnhof | at an | to zu dat
Markt | at auf | to auf acc
Strand | at an | to an acc
Stadt | in in | to in acc
Dorf | in in | to in acc
Kirche | in in | to in acc
Museum | in in | to in acc
Theater | in in | to in acc
Bibliothek | in in | to in acc
Restaurant | in in | to in acc
Hotel | in in | to in acc
Krankenhaus | in in | to in acc
Schloss | in in | to zu dat
Fabrik | in in | to zu dat
Bäckerei | in in | to zu dat
Wald | in in | into in acc
Fluss | at an | to an acc
See | at an | to an acc
Insel | on auf | to auf acc
"""


def _place(name: str, at: str, to: str) -> Place:
    en_at, de_at = at.split()
    en_to, de_to, case = to.split()
    return Place(_BY_NAME[name], (en_at, de_at), (en_to, de_to, "acc" if case == "acc" else "dat"))


PLACES: tuple[Place, ...] = tuple(_place(*row) for row in _rows(_PLACES))

# Where a thing is, seen from a piece of furniture or from a building: English and German, which takes the dative there.
NEAR_FURNITURE = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))
NEAR_BUILDINGS = (("behind", "hinter"), ("in front of", "vor"), ("next to", "neben"))

# Names that take a plain -s in the genitive.
NAMES: tuple[tuple[str, Literal["m", "f"]], ...] = (
    ("Anna", "f"),
    ("Julia", "f"),
    ("Maria", "f"),
    ("Laura", "f"),
    ("Sophie", "f"),
    ("Lena", "f"),
    ("Emma", "f"),
    ("Clara", "f"),
    ("Peter", "m"),
    ("Martin", "m"),
    ("Paul", "m"),
    ("David", "m"),
    ("Jan", "m"),
    ("Felix", "m"),
    ("Simon", "m"),
    ("Otto", "m"),
)
# They cannot take a plain -s, so nothing belongs to them.
NO_GENITIVE = ("Felix",)
SURNAMES = ("Weber", "Berger", "Hoffmann", "Keller", "Lehmann", "Brandt", "Vogel", "Sommer")
TITLES: tuple[tuple[str, str], ...] = (("Mr.", "Herr"), ("Mrs.", "Frau"))

WEEKDAYS = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)

_ANY_TIME = (
    Pair("after the meal", "nach dem Essen"),
    Pair("before the meal", "vor dem Essen"),
    Pair("after work", "nach der Arbeit"),
    Pair("during the break", "während der Pause"),
    Pair("because of the rain", "wegen des Regens"),
    Pair("despite the bad weather", "trotz des schlechten Wetters"),
)
PAST_TIMES: tuple[Pair, ...] = (
    Pair("yesterday", "gestern"),
    Pair("last week", "letzte Woche"),
    Pair("last summer", "letzten Sommer"),
    Pair("two days ago", "vor zwei Tagen"),
    Pair("a month ago", "vor einem Monat"),
    Pair("an hour ago", "vor einer Stunde"),
    Pair("this morning", "heute Morgen"),
    Pair("yesterday evening", "gestern Abend"),
    *(Pair(f"on {en}", f"am {de}") for en, de in WEEKDAYS),
    *(Pair(f"last {en}", f"letzten {de}") for en, de in WEEKDAYS),
    *_ANY_TIME,
)
HABIT_TIMES: tuple[Pair, ...] = (
    Pair("every day", "jeden Tag"),
    Pair("every morning", "jeden Morgen"),
    Pair("every evening", "jeden Abend"),
    Pair("every week", "jede Woche"),
    Pair("on weekends", "am Wochenende"),
    Pair("in summer", "im Sommer"),
    Pair("in winter", "im Winter"),
    *(Pair(f"on {en}s", f"{de.lower()}s") for en, de in WEEKDAYS),
    *_ANY_TIME,
)
NEXT_TIMES: tuple[Pair, ...] = (
    Pair("tomorrow", "morgen"),
    Pair("today", "heute"),
    Pair("tonight", "heute Abend"),
    Pair("soon", "bald"),
    Pair("next week", "nächste Woche"),
    Pair("next month", "nächsten Monat"),
    Pair("in two days", "in zwei Tagen"),
    Pair("in an hour", "in einer Stunde"),
    *(Pair(f"on {en}", f"am {de}") for en, de in WEEKDAYS),
    *(Pair(f"next {en}", f"nächsten {de}") for en, de in WEEKDAYS),
    *_ANY_TIME,
)
# They stand before the English verb and after what is known in German.
FREQUENCIES: tuple[Pair, ...] = (
    Pair("often", "oft"),
    Pair("sometimes", "manchmal"),
    Pair("always", "immer", starts=False),
    Pair("usually", "meistens"),
    Pair("rarely", "selten", starts=False),
)
# Adverb | the verbs it goes with.
_MANNERS = """
carefully vorsichtig | öffnen schneiden reparieren waschen einpacken aufhängen zumachen stellen legen
slowly langsam | lesen essen trinken aufstehen schreiben gehen laufen
quickly schnell | lesen essen trinken aufstehen reparieren aufräumen anziehen laufen einschlafen ausschalten
quietly leise | singen lachen sprechen weinen zumachen
loudly laut | singen lachen weinen rufen
patiently geduldig | warten zuhören erklären helfen
alone allein | arbeiten spielen tanzen reisen einkaufen wohnen
"""
MANNERS: dict[str, tuple[Pair, ...]] = {}
for _adverb, _verbs in _rows(_MANNERS):
    _en, _de = _adverb.split()
    for _word in _verbs.split():
        MANNERS[_word] = (*MANNERS.get(_word, ()), Pair(_en, _de))

RIDES: tuple[Pair, ...] = (
    Pair("by train", "mit dem Zug"),
    Pair("by bus", "mit dem Bus"),
    Pair("by ship", "mit dem Schiff"),
    Pair("by car", "mit dem Auto"),
)

# What explains an action and is nobody's doing: English, German before its verb, German verb; now and then.
WEATHER: tuple[tuple[tuple[str, str, str], tuple[str, str, str]], ...] = (
    (("it rains", "es", "regnet"), ("it rained", "es geregnet", "hat")),
    (("it snows", "es", "schneit"), ("it snowed", "es geschneit", "hat")),
    (("the sun shines", "die Sonne", "scheint"), ("the sun shone", "die Sonne geschienen", "hat")),
    (("it is cold", "es kalt", "ist"), ("it was cold", "es kalt", "war")),
    (("it is late", "es spät", "ist"), ("it was late", "es spät", "war")),
    (("the weather is bad", "das Wetter schlecht", "ist"), ("the weather was bad", "das Wetter schlecht", "war")),
    (("the weather is good", "das Wetter gut", "ist"), ("the weather was good", "das Wetter gut", "war")),
)
