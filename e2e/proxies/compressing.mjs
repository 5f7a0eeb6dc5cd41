// node compressing.mjs PORT TARGET: a proxy with the compression middleware, as many Node apps have it.
import compression from 'compression'
import express from 'express'
import proxies from 'http-proxy'

const [port, target] = process.argv.slice(2)
const proxy = proxies.createProxyServer({ target })
proxy.on('error', (_error, _request, response) => response.destroy?.())
express().use(compression()).use((request, response) => proxy.web(request, response)).listen(Number(port), '127.0.0.1')
