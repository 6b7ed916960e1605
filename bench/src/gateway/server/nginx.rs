//! nginx as a plain proxy: as many processes as the gateway has threads, kept-alive connections on both sides, and the
//! same headers for the upstream.

use std::{fs, process::Command, thread};

use anyhow::Result;

use super::ProxyLaunch;
use crate::options::GatewayBenchOptions;

pub(super) fn command(place: &ProxyLaunch<'_>, options: &GatewayBenchOptions) -> Result<Command> {
    let file = place.folder.join("nginx.conf");
    fs::write(&file, config(place, thread::available_parallelism()?.get()))?;
    let mut command = Command::new(&options.nginx);
    command.args(["-e", "stderr", "-p"]).arg(place.folder).arg("-c").arg(file);
    Ok(command)
}

fn config(place: &ProxyLaunch<'_>, workers: usize) -> String {
    let ProxyLaunch { port, upstream, .. } = place;
    format!(
        "daemon off;
worker_processes {workers};
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_body_buffer_size 64k;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    upstream orders {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} reuseport;
        location / {{
            proxy_pass http://orders;
            proxy_http_version 1.1;
            proxy_set_header LoadConnection \"\";
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header Forwarded \"for=$remote_addr;host=$http_host;proto=$scheme\";
        }}
    }}
}}
"
    )
}
