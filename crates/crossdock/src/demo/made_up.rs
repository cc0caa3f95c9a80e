//! Passengers and meals: the flight data has none, so they are made up from the flight, the same for the same flight every
//! time. Nobody is meant by the names.

use std::fmt::Write;

/// The key that distinguishes a flight from all others.
#[derive(Clone, Copy)]
pub(crate) struct FlightKey<'a> {
    /// Day of departure: year, month, day.
    pub(crate) date: [&'a str; 3],
    /// Scheduled local time of departure.
    pub(crate) sched_dep_time: &'a str,
    /// Airline.
    pub(crate) carrier: &'a str,
    /// Flight number.
    pub(crate) flight: &'a str,
}

const NAMES: [&str; 16] = [
    "Abara", "Bauer", "Castro", "Dubois", "Eriksen", "Fontana", "Gupta", "Haddad", "Ivanova", "Jensen", "Kim",
    "Larsen", "Moreau", "Nakamura", "Okafor", "Petrov",
];
const SEATS: [&str; 6] = ["A", "B", "C", "D", "E", "F"];
const MEALS: [&str; 5] = ["any", "vegetarian", "vegan", "kosher", "halal"];

/// Fills in the passengers and their meals, one for each, separated by semicolons.
pub(crate) fn passengers_and_meals(key: FlightKey<'_>, passengers: &mut String, meals: &mut String) {
    passengers.clear();
    meals.clear();
    let mut dice = Dice::new(key);
    for number in 0..=dice.below(4) {
        let separator = if number == 0 { "" } else { ";" };
        let (name, row, seat) = (NAMES[dice.below(16)], dice.below(30) + 1, SEATS[dice.below(6)]);
        // Writing to a String does not fail.
        let _ = write!(passengers, "{separator}{row}{seat} {name}");
        meals.push_str(separator);
        meals.push_str(MEALS[dice.below(5)]);
    }
}

/// Numbers that look like chance and are not.
struct Dice(u64);

impl Dice {
    fn new(key: FlightKey<'_>) -> Dice {
        let [year, month, day] = key.date;
        let words = [year, month, day, key.sched_dep_time, key.carrier, key.flight];
        // FNV-1a over the words, each with an end.
        let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
        Dice(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)))
    }

    fn below(&mut self, bound: u64) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(flight: &str) -> (String, String) {
        let key = FlightKey { date: ["2013", "1", "1"], sched_dep_time: "515", carrier: "UA", flight };
        let (mut passengers, mut meals) = ("left over".to_owned(), String::new());
        passengers_and_meals(key, &mut passengers, &mut meals);
        (passengers, meals)
    }

    #[test]
    fn the_same_flight_has_the_same_passengers() {
        assert_eq!(made_up("1545"), made_up("1545"));
        assert_ne!(made_up("1545"), made_up("1546"));
    }

    #[test]
    fn every_passenger_has_a_meal() {
        for flight in 0..1000 {
            let (passengers, meals) = made_up(&flight.to_string());
            assert!(!passengers.is_empty() && !passengers.contains("left over"));
            assert_eq!(passengers.split(';').count(), meals.split(';').count(), "{passengers} / {meals}");
        }
    }
}
