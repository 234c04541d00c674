//! Who is told, and how.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use windlass_api::duration;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::notification::{Notification, NotificationMethod, RETRIES, SIGNALS, TIMEOUT};
use super::absolute;
use super::fields::{self, FieldReader};

/// Whoever needs longer should do it in the background.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
const MOST_RETRIES: i64 = 100;
const KINDS: [&str; 3] = ["signal", "command", "http"];

/// Reads `notify`, if it is there.
pub fn read(fields: &mut FieldReader, errors: &mut FieldErrors) -> Vec<Notification> {
    let mut ids = BTreeSet::new();
    let mut notifications: Vec<Notification> = Vec::new();
    for (at, item) in fields.items("notify", errors) {
        let item = FieldReader::from_value(item, &at, errors);
        let Some(notification) = item.and_then(|item| notification(item, errors)) else { continue };
        if !ids.insert(notification.how.id()) {
            let shown = notification.how.to_string();
            errors.duplicate(&at, &shown.into());
        }
        notifications.push(notification);
    }
    notifications
}

fn notification(mut item: FieldReader, errors: &mut FieldErrors) -> Option<Notification> {
    let timeout = timeout(&mut item, errors);
    let retries = item.integer("retries", errors).unwrap_or(RETRIES.into());
    for words in names::in_range(retries, 0, MOST_RETRIES) {
        errors.invalid(&item.child("retries"), &retries.into(), &words);
    }
    let retries = u32::try_from(retries).unwrap_or(RETRIES);
    let given = KINDS.into_iter().filter(|kind| item.has(kind)).collect::<Vec<_>>();
    let how = match given.as_slice() {
        ["signal"] => signal(&mut item, errors),
        ["command"] => command(&mut item, errors),
        ["http"] => http(&mut item, errors),
        [] => {
            errors.required(item.path(), "one of signal, command and http is required");
            None
        }
        _ => {
            errors.forbidden(item.path(), "only one of signal, command and http may be used");
            return None;
        }
    };
    item.end(errors);
    Some(Notification { how: how?, timeout, retries })
}

fn timeout(item: &mut FieldReader, errors: &mut FieldErrors) -> Duration {
    let Some(text) = item.text("timeout", errors) else { return TIMEOUT };
    let at = item.child("timeout");
    match duration::parse(&text) {
        Ok(timeout) if !timeout.is_zero() && timeout <= LONGEST_TIMEOUT => return timeout,
        Ok(_) => errors.invalid_str(&at, &text, "must be more than 0 and at most 10m"),
        Err(error) => errors.invalid_str(&at, &text, &error.to_string()),
    }
    TIMEOUT
}

fn signal(item: &mut FieldReader, errors: &mut FieldErrors) -> Option<NotificationMethod> {
    let mut section = item.section("signal", errors)?;
    let name = section.require_text("name", errors);
    let signal = name.and_then(|name| {
        let short = name.strip_prefix("SIG").unwrap_or(&name);
        let known = SIGNALS.iter().find(|(known, _)| *known == short);
        if known.is_none() {
            errors.not_supported(&section.child("name"), &name, &SIGNALS.map(|(known, _)| known));
        }
        known.map(|(_, signal)| *signal)
    });
    let file = section.require_text("pidFile", errors);
    let pid_file = file.and_then(|file| absolute(&file, &section.child("pidFile"), errors));
    section.end(errors);
    Some(NotificationMethod::Signal { signal: signal?, pid_file: pid_file? })
}

fn command(item: &mut FieldReader, errors: &mut FieldErrors) -> Option<NotificationMethod> {
    let at = item.child("command");
    let before = errors.len();
    let arguments = item.texts("command", errors);
    if errors.len() > before {
        return None;
    }
    for (at, argument) in &arguments {
        if argument.contains('\0') {
            errors.invalid_omitted(at, "must not contain a NUL character");
        }
    }
    if arguments.first().is_none_or(|(_, program)| program.is_empty()) {
        errors.required(&at.index(0), "the program");
    }
    Some(NotificationMethod::Command(arguments.into_iter().map(|(_, argument)| argument).collect()))
}

fn http(item: &mut FieldReader, errors: &mut FieldErrors) -> Option<NotificationMethod> {
    let mut section = item.section("http", errors)?;
    let text = section.require_text("url", errors);
    let url = text.and_then(|text| url(&text, &section.child("url"), errors));
    let method = section.text("method", errors).unwrap_or_else(|| "POST".to_owned());
    let known =
        Method::from_bytes(method.as_bytes()).ok().filter(|known| *known != Method::CONNECT);
    if known.is_none() {
        errors.invalid_str(&section.child("method"), &method, "must be a method of HTTP");
    }
    let headers = section.section("headers", errors).map(|headers| self::headers(headers, errors));
    section.end(errors);
    Some(NotificationMethod::Http {
        url: url?,
        method: known?,
        headers: headers.unwrap_or_default(),
    })
}

fn url(text: &str, at: &FieldPath, errors: &mut FieldErrors) -> Option<Uri> {
    let url = text.parse::<Uri>().ok();
    let detail = match &url {
        Some(url) if url.authority().is_some_and(|host| host.as_str().contains('@')) => {
            // It is not shown: there is a password in it.
            let detail = "must not contain a user; use the header Authorization";
            errors.invalid_omitted(at, detail);
            return None;
        }
        Some(url) if url.scheme_str() == Some("http") && url.host().is_some() => None,
        Some(_) | None => Some("must be a URL that begins with http://"),
    };
    if let Some(detail) = detail {
        errors.invalid_str(at, text, detail);
        return None;
    }
    url
}

fn headers(section: FieldReader, errors: &mut FieldErrors) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let (at, map) = section.rest();
    for (name, value) in map {
        let at = at.key(&name);
        let Some(value) = fields::text(value, &at, errors) else { continue };
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            errors.invalid_str(&at, &name, "must be the name of a header");
            continue;
        };
        let Ok(mut value) = HeaderValue::from_str(&value) else {
            errors.invalid_omitted(&at, "must be the value of a header");
            continue;
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}
