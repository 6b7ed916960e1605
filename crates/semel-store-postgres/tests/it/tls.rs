//! TLS: certificates are checked under `require` and stricter modes.

use semel_core::Store;
use semel_servers::{Certificates, POSTGRES, Running, scratch};
use semel_store_postgres::PostgresStore;

use crate::common::{claim_of, granted, key};

#[tokio::test]
async fn a_certificate_is_accepted_if_the_named_authority_signed_it_for_that_host() {
    let folder = scratch("certificates").join(format!("{:032x}", rand::random::<u128>()));
    std::fs::create_dir_all(&folder).unwrap();
    let certificates = Certificates::make(&folder).unwrap();
    let server = Running::start(&POSTGRES.tls(&certificates)).unwrap();
    let connect = |query: String| {
        PostgresStore::builder(format!("{}?{query}", server.url())).migrate(true).connect()
    };
    let authority = certificates.authority().display().to_string();
    for mode in ["require", "verify-ca", "verify-full"] {
        let store = connect(format!("sslmode={mode}&sslrootcert={authority}")).await.unwrap();
        granted(&store, &claim_of(key())).await;
        assert!(server.sql("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'semel'").unwrap() == "t");
    }
    let unknown_authority = connect("sslmode=require".to_owned()).await.unwrap_err();
    assert!(unknown_authority.to_string().contains("ertificate"), "{unknown_authority}");
    connect("sslmode=prefer".to_owned()).await.unwrap().stats().await.unwrap();
    connect("sslmode=disable".to_owned()).await.unwrap().stats().await.unwrap();
    let missing =
        connect("sslmode=require&sslrootcert=/no/such/file".to_owned()).await.unwrap_err();
    assert!(missing.to_string().contains("sslrootcert"), "{missing}");
    std::fs::remove_dir_all(folder).unwrap();
}
