//! Drawing on standard error: writes the changed cells of a frame at once, with control sequences that all current
//! terminals support. Nothing is requested from the terminal, so a slow, stopped or lost terminal delays only the
//! drawing.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use ratatui_core::{
    backend::{Backend, ClearType, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
    style::{Color, Modifier},
};

/// Output to be written next.
#[derive(Debug, Default)]
pub(super) struct Pane {
    text: String,
}

impl Pane {
    /// Queues a control sequence ahead of the next frame.
    pub(super) fn put(&mut self, sequence: &str) {
        self.text.push_str(sequence);
    }
}

/// Returns the colour code and the modifiers of a cell.
fn style(cell: &Cell) -> (Option<u8>, Modifier) {
    let color = match cell.fg {
        Color::Red => Some(31),
        Color::Green => Some(32),
        Color::Yellow => Some(33),
        Color::Cyan => Some(36),
        _ => None,
    };
    (color, cell.modifier)
}

impl Backend for Pane {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut last = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
            }
            // Texts contain no double-width characters. The position is set again after any non-ASCII character.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
            let own = style(cell);
            if last != Some(own) {
                last = Some(own);
                self.text.push_str("\x1b[0");
                let (color, modifier) = own;
                if let Some(color) = color {
                    let _ = write!(self.text, ";{color}");
                }
                for (of, code) in [
                    (Modifier::BOLD, ";1"),
                    (Modifier::DIM, ";2"),
                    (Modifier::REVERSED, ";7"),
                ] {
                    if modifier.contains(of) {
                        self.text.push_str(code);
                    }
                }
                self.text.push('m');
            }
            self.text.push_str(cell.symbol());
        }
        self.text.push_str("\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.put("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // The cursor is hidden, so its position does not matter.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.put("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let size = rustix::termios::tcgetwinsize(io::stderr())?;
        Ok(Size::new(size.ws_col, size.ws_row))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = io::stderr().write_all(self.text.as_bytes());
        self.text.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::style::Style;

    use super::*;

    #[test]
    fn only_what_changes_is_told() {
        let mut pane = Pane::default();
        let cell = |symbol, style| {
            let mut cell = Cell::new(symbol);
            cell.set_style(style);
            cell
        };
        let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let cells = [
            (0, 0, cell("a", red)),
            (1, 0, cell("b", red)),
            (2, 0, cell("─", Style::new())),
            (3, 0, cell("c", Style::new())),
            (0, 4, cell("d", Style::new())),
        ];
        pane.draw(cells.iter().map(|(x, y, cell)| (*x, *y, cell)))
            .unwrap();
        assert_eq!(
            pane.text,
            "\x1b[1;1H\x1b[0;31;1mab\x1b[0m─\x1b[1;4Hc\x1b[5;1Hd\x1b[0m"
        );
    }
}
