//! Selected figures: lines of `NAME=value`, comma-separated values, columns.

use super::selection::FigureSelection;
use super::selectors::{HEADER_LINES, Selector};
use super::values::TestView;
use crate::OutputForm;

/// Figures of a selection in one of the forms.
pub(crate) fn selected_figures(
    view: TestView<'_>,
    form: OutputForm,
    selection: &FigureSelection,
) -> String {
    let blocks: Vec<Vec<SelectedFigure>> = selection
        .blocks
        .iter()
        .map(|block| {
            block
                .iter()
                .map(|one| SelectedFigure::of_selector(view, *one))
                .collect()
        })
        .collect();
    match form {
        OutputForm::KeyValue => key_value(&blocks),
        OutputForm::Csv => csv_form(view, &blocks),
        OutputForm::Human | OutputForm::Classic => human_form(view, &blocks),
    }
}

/// A selector with its value. Both are `None` for an unknown name.
struct SelectedFigure {
    selector: Option<&'static Selector>,
    value: Option<String>,
}

impl SelectedFigure {
    fn of_selector(view: TestView<'_>, selector: Option<&'static Selector>) -> Self {
        Self {
            selector,
            value: selector.and_then(|one| view.item_text(one.item)),
        }
    }

    fn header_word(&self, line: usize) -> &'static str {
        self.selector.map_or("", |one| one.header_word(line))
    }

    /// Width of its column: the longest header word or the value with one blank.
    fn width(&self) -> usize {
        let words = (0..HEADER_LINES).map(|line| self.header_word(line).chars().count());
        let value = self
            .value
            .as_ref()
            .map_or(0, |text| text.chars().count() + 1);
        words.fold(value, usize::max)
    }
}

fn key_value(blocks: &[Vec<SelectedFigure>]) -> String {
    let mut text = String::new();
    for figure in blocks.iter().flatten() {
        if let (Some(selector), Some(value)) = (figure.selector, &figure.value) {
            text.push_str(&format!("{}={value}\n", selector.name));
        }
    }
    text
}

fn csv_form(view: TestView<'_>, blocks: &[Vec<SelectedFigure>]) -> String {
    if blocks.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    if view.show.headers {
        let titles: Vec<String> = blocks
            .iter()
            .flatten()
            .filter_map(|figure| figure.selector)
            .map(Selector::title)
            .collect();
        text.push_str(&titles.join(","));
        text.push('\n');
    }
    // The original prints a blank after the comma that follows a missing value.
    let missing = if view.show.strict { ", " } else { "," };
    let mut values = String::new();
    for figure in blocks.iter().flatten() {
        match &figure.value {
            Some(value) => {
                values.push_str(value);
                values.push(',');
            }
            None => values.push_str(missing),
        }
    }
    values.pop();
    text + &values + "\n"
}

fn human_form(view: TestView<'_>, blocks: &[Vec<SelectedFigure>]) -> String {
    let mut text = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let mut line = |cell: &dyn Fn(&SelectedFigure) -> String| {
            for figure in block {
                let width = figure.width();
                text.push_str(&format!("{:<width$} ", cell(figure)));
            }
            text.push('\n');
        };
        if view.show.headers {
            for number in 0..HEADER_LINES {
                line(&|figure| figure.header_word(number).to_owned());
            }
        }
        line(&|figure| figure.value.clone().unwrap_or_default());
    }
    text
}
