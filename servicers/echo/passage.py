"""The texts that the echo engine answers with where a prompt does not say."""

FIXED_REPLY = "This is the fixed reply of the echo engine."
# What a reply is prolonged with, when it may not end.
FILLER = " and"
# ASCII only, so that a reply which starts in its middle is text too.
PASSAGE = (
    "The harbour wakes before the town does. Boats come in with the tide, low in the water, and the gulls follow "
    "them past the long grey wall to the steps where the baskets are lifted out. Somebody counts, somebody writes "
    "the numbers down, and by six o'clock the first carts are on their way up the hill. A girl with a lamp walks "
    "from door to door and puts out what the night left burning. The baker has been at work since two; his window "
    "is the only warm thing in the street, and people stop in front of it longer than they need to.\n\n"
    "When the sun reaches the square, the market is half built. There are eggs, onions, rope, lamp oil, three kinds "
    "of pears and a man who mends clocks. He keeps the oldest of them running on his table and sets it each noon by "
    "the shadow of the tower, although it has never been more than a minute wrong. Children ask him why he does it. "
    "He says that a thing which is looked after every day does not have to be repaired, and goes on with his work.\n\n"
    "In the afternoon the wind turns. The nets are hung along the wall, and from the hill they look like one long "
    "line of writing that nobody has learned to read. Letters arrive with the second ferry. Those who cannot wait "
    "open them on the quay; the others carry them home unopened, slowly, as one carries a full cup. Later there is "
    "music from the open windows, never quite together, and the smell of bread again. Then the lamps are lit, one "
    "by one, in the same order as the day before, and the boats go out. "
)
