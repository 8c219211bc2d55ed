//! Capture files as clients expect them: with the FCS of each frame, which the kernel does not deliver.

/// Magic numbers of pcap files with microseconds and with nanoseconds.
const MAGICS: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
const HEADER: usize = 24;
const RECORD: usize = 16;

/// Appends the FCS to each whole frame of a pcap file. A record that is not complete is left out.
#[must_use]
pub fn with_fcs(file: &[u8]) -> Vec<u8> {
    let Some(header) = file.get(..HEADER) else {
        return file.to_vec();
    };
    let magic = [header[0], header[1], header[2], header[3]];
    let is_little = MAGICS.contains(&u32::from_le_bytes(magic));
    let read = |bytes: &[u8]| {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match is_little {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        }
    };
    let write = |number: u32| match is_little {
        true => number.to_le_bytes(),
        false => number.to_be_bytes(),
    };
    let table = crc_table();
    let mut out = Vec::with_capacity(file.len() + file.len() / 8);
    out.extend_from_slice(header);
    let mut rest = &file[HEADER..];
    while let Some(record) = rest.get(..RECORD) {
        let (kept, whole) = (read(&record[8..]), read(&record[12..]));
        let Some(frame) = rest.get(RECORD..RECORD + kept as usize) else {
            break;
        };
        let is_whole = kept == whole;
        out.extend_from_slice(&record[..8]);
        out.extend_from_slice(&write(if is_whole { kept + 4 } else { kept }));
        out.extend_from_slice(&write(whole + 4));
        out.extend_from_slice(frame);
        if is_whole {
            out.extend_from_slice(&crc(&table, frame).to_le_bytes());
        }
        rest = &rest[RECORD + kept as usize..];
    }
    out
}

/// Table of CRC-32 (IEEE 802.3).
fn crc_table() -> [u32; 256] {
    std::array::from_fn(|n| {
        (0..8).fold(u32::try_from(n).unwrap_or(0), |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    })
}

fn crc(table: &[u32; 256], bytes: &[u8]) -> u32 {
    let next = |crc: u32, byte: &u8| table[(crc as u8 ^ byte) as usize] ^ crc >> 8;
    !bytes.iter().fold(!0, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string() {
        assert_eq!(crc(&crc_table(), b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn whole_frames_get_their_fcs() {
        let mut file = MAGICS[1].to_le_bytes().to_vec();
        file.resize(HEADER, 0);
        let record = |kept: u32, whole: u32| {
            let mut record = vec![0; 8];
            record.extend(kept.to_le_bytes());
            record.extend(whole.to_le_bytes());
            record.extend(vec![7; kept as usize]);
            record
        };
        file.extend(record(60, 60));
        file.extend(record(20, 60));
        file.extend(&record(60, 60)[..40]);
        let out = with_fcs(&file);
        assert_eq!(out.len(), HEADER + RECORD + 64 + RECORD + 20);
        assert_eq!((out[HEADER + 8], out[HEADER + 12]), (64, 64));
        let second = HEADER + RECORD + 64;
        assert_eq!((out[second + 8], out[second + 12]), (20, 64));
    }
}
