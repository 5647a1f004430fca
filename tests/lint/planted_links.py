"""Pages with links that lead nowhere."""

ARGUMENTS = ["@"]
CLEAN = {
    "README.md": "[a](docs/a.md#part) [web](https://example.org/x) [here](#part) `[b](gone.md)`\n",
    "docs/a.md": "[up](../README.md) [folder](../docs)\n\n```\n[c](gone.md)\n```\n",
}
VIOLATIONS = {
    "a page that is gone": {"docs/b.md": "see [c](c.md)\n"},
    "a path from the wrong folder": {"docs/d.md": "see [a](docs/a.md)\n"},
}
