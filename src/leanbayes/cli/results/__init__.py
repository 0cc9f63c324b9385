"""The record of a comparison as a page of Markdown: `leanbayes report FILE --markdown PAGE`."""
