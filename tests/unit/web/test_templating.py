"""The templates of the pages."""

from __future__ import annotations

from dmls_core.web.templating import TEMPLATES, environment


def test_templates_escape_every_value_and_have_no_inline_scripts_or_styles():
    assert environment().autoescape is True
    for file in TEMPLATES.glob("*.html"):
        text = file.read_text()
        assert "| safe" not in text, file
        assert "style=" not in text, file
        assert "onclick" not in text, file
        assert "<script>" not in text, file
