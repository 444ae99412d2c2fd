// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
)

// CheckAddress returns an error unless the address is host:port with a loopback address as host,
// such as 127.0.0.1:6060. Host names are refused, whatever they resolve to now.
func CheckAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Unmap().IsLoopback() {
		return fmt.Errorf("profiles are served on a loopback address only: write 127.0.0.1:PORT or [::1]:PORT")
	}
	return nil
}

// Handler serves /debug/pprof/.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
