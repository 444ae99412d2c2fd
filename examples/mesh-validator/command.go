// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// The program's exit codes. The one for "not captured" is Istio's.
const (
	exitCaptured    = 0
	exitTrouble     = 1
	exitUsage       = 2
	exitNotCaptured = 126
)

type report struct {
	Captured bool     `json:"captured"`
	Checks   []result `json:"checks"`
}

func run(ctx context.Context, env environment) int {
	o, err := parse(env)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitCaptured
	case err != nil:
		fmt.Fprintf(env.stderr, "mesh-validator: %v\n", err)
		return exitUsage
	case o.askVersion:
		fmt.Fprintf(env.stdout, "mesh-validator %s\n", env.version)
		return exitCaptured
	}
	d := newDesk(uint16(o.probe))
	defer d.close()
	results, err := validate(ctx, o, d)
	if len(results) > 0 {
		show(env, o, results)
	}
	failed := message(results)
	switch {
	case err != nil:
		return end(env, o, exitTrouble, "could not try: "+err.Error())
	case failed != "":
		return end(env, o, exitNotCaptured, "not captured: "+failed)
	case o.stay:
		d.close()
		<-ctx.Done()
	}
	return exitCaptured
}

func validate(ctx context.Context, o options, d *desk) ([]result, error) {
	addresses, err := podAddresses()
	if err != nil {
		return nil, err
	}
	v := &validation{options: o, desk: d, addresses: addresses, decoy: map[family]uint16{}}
	families := v.each("")
	if len(families) == 0 {
		return nil, errors.New("the pod has no address yet")
	}
	ports := map[uint]place{o.outbound: deskOutbound, o.inbound: deskInbound}
	if o.probe != 0 {
		ports[o.probe] = deskOpen
	}
	if o.tproxy && slices.Contains(o.check, kindSelf) {
		ports[o.tunnel] = deskOpen
	}
	for _, f := range families {
		for port, at := range ports {
			if _, err := d.open(ctx, at, f, uint16(port)); err != nil {
				return nil, err
			}
		}
		if v.decoy[f], err = d.open(ctx, deskOpen, f, 0); err != nil {
			return nil, err
		}
	}
	return v.all(ctx)
}

// podAddresses returns the pod's externally reachable addresses. It skips lo: the mesh puts
// addresses on it for the proxy to send from, and nothing connects to these.
func podAddresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the pod's interfaces: %w", err)
	}
	var found []netip.Addr
	for _, one := range interfaces {
		if one.Flags&net.FlagLoopback != 0 {
			continue
		}
		all, err := one.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list the addresses of the pod's interface %s: %w", one.Name, err)
		}
		for _, address := range all {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Addr().IsGlobalUnicast() {
				found = append(found, prefix.Addr())
			}
		}
	}
	return found, nil
}

// message names the directions that failed, in one line; "" if none did.
func message(results []result) string {
	var failed []string
	for _, r := range results {
		if !r.Captured {
			failed = append(failed, r.String())
		}
	}
	return strings.Join(failed, "; ")
}

func show(env environment, o options, results []result) {
	r := report{Captured: message(results) == "", Checks: results}
	if o.output == "json" {
		if err := json.NewEncoder(env.stdout).Encode(r); err != nil {
			fmt.Fprintf(env.stderr, "mesh-validator: %v\n", err)
		}
		return
	}
	for _, one := range results {
		word := "captured"
		if !one.Captured {
			word = "NOT CAPTURED"
		}
		fmt.Fprintf(env.stdout, "%s %s\n", word, one)
	}
}

// end explains the exit code, on standard error and to Kubernetes.
func end(env environment, o options, code int, text string) int {
	text = "mesh-validator: " + text + "\n"
	fmt.Fprint(env.stderr, text)
	if o.message == "" {
		return code
	}
	// Kubernetes creates the file, if it uses one.
	file, err := os.OpenFile(o.message, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return code
	}
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintf(env.stderr, "mesh-validator: can't write the message for Kubernetes: %v\n", err)
	}
	return code
}
