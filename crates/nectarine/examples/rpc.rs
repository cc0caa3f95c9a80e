//! Procedures: a program that serves one, and a caller with several calls on their way.
//!
//! ```sh
//! crossdock serve &
//! cargo run --example rpc -- 127.0.0.1:7440
//! ```

#![allow(clippy::print_stdout, reason = "it is run to be read")]

use std::error::Error;
use std::time::Duration;

use crossdock_nectarine::{Call, CallError, Node};

const DEADLINE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7440".to_owned());
    for line in run(&address)? {
        println!("{line}");
    }
    Ok(())
}

/// Everything once; returns the output.
pub(crate) fn run(address: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen = Vec::new();
    let node = Node::connect(address)?;
    // Callers anywhere find it by its name, until it is dropped.
    let service = node.serve("divide", |request: &[u8], reply: &mut Vec<u8>| {
        let [dividend, divisor] = *request else { return Err("two numbers are needed".to_owned()) };
        let quotient = dividend.checked_div(divisor).ok_or("nothing is divided by 0")?;
        reply.push(quotient);
        Ok(())
    })?;

    // Usually in another program, on this machine or another one.
    let divide = node.procedure("divide")?;
    let quotient = divide.call(&[84, 2], DEADLINE)?;
    seen.push(format!("84 / 2 = {}", quotient[0]));
    // Errors are values: the procedure's own, a panic, a deadline that has passed, a service that is gone.
    if let Err(CallError::Failed(text)) = divide.call(&[84, 0], DEADLINE) {
        seen.push(format!("84 / 0: {text}"));
    }
    // Several on their way; their results may be waited for in any order.
    let calls = (1..=4).map(|divisor| divide.begin_call(&[12, divisor], DEADLINE)).collect::<Result<Vec<_>, _>>()?;
    let quotients = calls.into_iter().rev().map(Call::wait).collect::<Result<Vec<_>, _>>()?;
    let quotients: Vec<u8> = quotients.iter().map(|reply| reply[0]).collect();
    seen.push(format!("12 / 4, 3, 2, 1 = {quotients:?}"));
    service.stop();
    Ok(seen)
}
