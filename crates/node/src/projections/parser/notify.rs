//! The section `notify`: how applications are notified of new files.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use windlass_runtime::config::{ConfigField, ConfigResult};

use super::super::notification::{Notification, NotificationMethod, RETRIES, SIGNALS, TIMEOUT};
use super::parse_absolute_path;

/// An application that needs longer should reload in the background.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_RETRIES: i64 = 100;

/// Parses the list of notifications. Commands, URLs and headers may contain secrets, which errors must not show.
pub fn parse(list: &ConfigField<'_>) -> ConfigResult<Vec<Notification>> {
    let mut ids = BTreeSet::new();
    list.sensitive().parse_items(|item| {
        let notification = parse_notification(item)?;
        if !ids.insert(notification.how.id()) {
            let how = &notification.how;
            return Err(item.error(format!("repeats the notification \"{how}\"; remove one")));
        }
        Ok(notification)
    })
}

fn parse_notification(item: &ConfigField<'_>) -> ConfigResult<Notification> {
    let fields = item.fields(&["signal", "command", "http", "timeout", "retries"])?;
    let how = match fields.exactly_one(&["signal", "command", "http"]) {
        Ok(("signal", section)) => parse_signal(&section),
        Ok(("command", list)) => parse_command(&list),
        Ok((_, section)) => parse_http(&section),
        Err(error) => Err(error),
    };
    let timeout = fields.optional("timeout", |field| match field.duration()? {
        timeout if timeout.is_zero() || timeout > MAX_TIMEOUT => {
            Err(field.invalid("is out of range; use more than 0s and at most 10m"))
        }
        timeout => Ok(timeout),
    });
    let retries = fields.optional("retries", |field| field.integer_in(0..=MAX_RETRIES));
    let retries = retries?.and_then(|retries| u32::try_from(retries).ok()).unwrap_or(RETRIES);
    Ok(Notification { how: how?, timeout: timeout?.unwrap_or(TIMEOUT), retries })
}

fn parse_signal(section: &ConfigField<'_>) -> ConfigResult<NotificationMethod> {
    let fields = section.fields(&["name", "pidFile"])?;
    let signal = fields.required("name", |field| {
        let text = field.text()?;
        let short = text.strip_prefix("SIG").unwrap_or(text);
        match SIGNALS.iter().find(|(name, _)| *name == short) {
            Some((_, signal)) => Ok(*signal),
            None => field.one_of(&SIGNALS),
        }
    });
    let pid_file = fields.required("pidFile", parse_absolute_path);
    Ok(NotificationMethod::Signal { signal: signal?, pid_file: pid_file? })
}

fn parse_command(list: &ConfigField<'_>) -> ConfigResult<NotificationMethod> {
    let arguments = list.parse_items(|item| match item.text_or_empty()? {
        argument if argument.contains('\0') => Err(item.error("contains a NUL character; remove it")),
        argument => Ok(argument.to_owned()),
    })?;
    if arguments.first().is_none_or(String::is_empty) {
        return Err(list.error("has no program; write it as the first item"));
    }
    Ok(NotificationMethod::Command(arguments))
}

fn parse_http(section: &ConfigField<'_>) -> ConfigResult<NotificationMethod> {
    let fields = section.fields(&["url", "method", "headers"])?;
    let url = fields.required("url", parse_url);
    let method = fields.optional("method", |field| {
        let method = Method::from_bytes(field.text()?.as_bytes()).ok();
        method
            .filter(|method| *method != Method::CONNECT)
            .ok_or_else(|| field.invalid("is not a supported HTTP method; use one such as POST"))
    });
    let headers = fields.optional("headers", |map| map.parse_entries(parse_header));
    let (url, method) = (url?, method?.unwrap_or(Method::POST));
    let headers = headers?.unwrap_or_default().into_iter().collect::<HeaderMap>();
    Ok(NotificationMethod::Http { url, method, headers })
}

fn parse_url(field: &ConfigField<'_>) -> ConfigResult<Uri> {
    let url = field.text()?.parse::<Uri>().ok();
    match url {
        Some(url) if url.authority().is_some_and(|host| host.as_str().contains('@')) => {
            Err(field.error("contains a user; use the header Authorization instead"))
        }
        Some(url) if url.scheme_str() == Some("http") && url.host().is_some() => Ok(url),
        Some(_) | None => Err(field.error("must be a URL that begins with http://")),
    }
}

fn parse_header(key: &str, field: &ConfigField<'_>) -> ConfigResult<(HeaderName, HeaderValue)> {
    let value = field.text_or_empty();
    let name = HeaderName::from_bytes(key.as_bytes())
        .map_err(|_| field.error(format!("{key:?} is not the name of an HTTP header")));
    let mut value = HeaderValue::from_str(value?)
        .map_err(|_| field.error("is not the value of an HTTP header; use visible ASCII"))?;
    value.set_sensitive(true);
    Ok((name?, value))
}
