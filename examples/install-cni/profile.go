// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/pprof"
)

// profiles serves /debug/pprof/. A profile reveals the content of memory, so the setting
// pprof-address accepts only loopback addresses.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
