use super::*;

#[test]
fn a_file_that_is_missing_or_too_long_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections.yaml");
    let error = read(&path, &FileSystem::default()).unwrap_err().to_string();
    assert!(error.ends_with("projections.yaml: file not found"), "{error}");
    std::fs::write(&path, vec![b' '; MAX_CONFIG_BYTES + 1]).unwrap();
    let error = read(&path, &FileSystem::default()).unwrap_err().to_string();
    assert!(error.ends_with("projections.yaml: is longer than 1048576 bytes"), "{error}");
    let error = read(dir.path(), &FileSystem::default()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read"), "{error}");
}

#[test]
fn a_certificate_is_for_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("projections.yaml");
    let text = "apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n\
                - {name: a, directory: /a, certificate: {dnsNames: [a.example]},\n\
                \x20  projected: {sources: [{configMap: {name: m}}]}}\n";
    std::fs::write(&path, text).unwrap();
    let found = read(&path, &FileSystem::default()).unwrap();
    let names = AltNames { dns_names: vec!["a.example".into()], ..AltNames::default() };
    assert_eq!(found[0].certificate_subject(), CertificateSubject::Host { common_name: None, names });
}
