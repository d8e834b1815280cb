"""Pictures as files, small: a repository keeps every one that was ever drawn."""

from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

COLOURS = 256  # as many greys as a byte has: nothing is lost where all is grey


def save(figure: Figure, path: Path) -> None:
    """Write the picture with a palette, in a good third of the bytes that it takes with a colour a pixel."""
    drawn = BytesIO()
    figure.savefig(drawn)
    picture = Image.open(drawn).convert("RGB")
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, "PNG", optimize=True)
