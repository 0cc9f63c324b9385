"""Reports: result files of this project as one HTML page and its charts, from plain data.

`read` a file, `build` the sections, `page` and `figures` write them. A section is a small file in
`sections` with a function that looks at the results and gives a Section, or None where it has
nothing to say. Nothing here needs torch.
"""

from leanbayes.reporting.page import page
from leanbayes.reporting.results import Result, read
from leanbayes.reporting.sections import SECTIONS, Section, build

__all__ = ["SECTIONS", "Result", "Section", "build", "page", "read"]
