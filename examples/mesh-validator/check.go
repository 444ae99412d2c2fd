// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// kind is the method of a check.
type kind string

const (
	kindOutbound kind = "outbound"
	kindSelf     kind = "self"
	kindProbe    kind = "probe"
)

func (k kind) direction() string {
	if k == kindOutbound {
		return "outbound"
	}
	return "inbound"
}

type family string

const (
	ipv4 family = "ipv4"
	ipv6 family = "ipv6"
)

func familyOf(a netip.Addr) family {
	if a.Is4() || a.Is4In6() {
		return ipv4
	}
	return ipv6
}

type result struct {
	Direction string `json:"direction"`
	Check     kind   `json:"check"`
	// Family is empty for a probe that was free to use either family and did not come.
	Family   family `json:"family,omitempty"`
	Captured bool   `json:"captured"`
	Detail   string `json:"detail"`
}

func (r result) String() string {
	text := r.Direction
	if r.Family != "" {
		text += " " + string(r.Family)
	}
	return fmt.Sprintf("%s (%s): %s", text, r.Check, r.Detail)
}

// errNotTried is in the error of a check that could not be made.
var errNotTried = errors.New("could not be tried")

const (
	// pause is the time between two tries: another program may repair the pod meanwhile.
	pause = 200 * time.Millisecond
	// patience limits one try.
	patience = time.Second
)

type validation struct {
	options
	*desk
	addresses []netip.Addr // the pod's
	decoy     map[family]uint16
	others    chan struct{} // closed when all checks but probes have ended
}

func (v *validation) all(ctx context.Context) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	var probes, others sync.WaitGroup
	var mu sync.Mutex
	var results []result
	var errs []error
	v.others = make(chan struct{})
	start := func(k kind, f family, check func(context.Context, family) (string, error)) {
		group := &others
		if k == kindProbe {
			group = &probes
		}
		group.Go(func() {
			r := result{Direction: k.direction(), Check: k, Family: f}
			detail, err := check(ctx, f)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, errNotTried) {
				errs = append(errs, fmt.Errorf("%s %s: %w", r.Direction, f, err))
			}
			if r.Captured, r.Detail = err == nil, detail; err != nil {
				r.Detail = err.Error()
			}
			results = append(results, r)
		})
	}
	checks := map[kind]func(context.Context, family) (string, error){
		kindOutbound: v.leave, kindSelf: v.call, kindProbe: v.awaitProbe,
	}
	for _, k := range v.check {
		for _, f := range v.each(k) {
			start(k, f, checks[k])
		}
	}
	others.Wait()
	mu.Lock()
	v.passed.Store(!slices.ContainsFunc(results, func(r result) bool { return r.Check != kindProbe && !r.Captured }))
	mu.Unlock()
	close(v.others)
	probes.Wait()
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.String(), b.String()) })
	return results, errors.Join(errs...)
}

// each returns the families of a check. The kubelet probes the pod's first address, so any family
// will do unless the command line names some.
func (v *validation) each(k kind) []family {
	if k == kindProbe && len(v.families) == 0 {
		return []family{""}
	}
	if len(v.families) > 0 {
		return v.families
	}
	var all []family
	for _, a := range v.addresses {
		if f := familyOf(a); !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// leave connects to an unassigned address until the connection ends at the outbound port.
func (v *validation) leave(ctx context.Context, f family) (string, error) {
	i := slices.IndexFunc(v.to, func(to netip.AddrPort) bool { return familyOf(to.Addr()) == f })
	if i < 0 {
		return "", fmt.Errorf("%w: name an address of the family with -outbound-to, or leave it out with -families", errNotTried)
	}
	to := v.to[i]
	return v.until(ctx, func(ctx context.Context) (string, error) {
		at, err := v.send(ctx, to)
		switch {
		case (errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL)) && !routed(ctx, to):
			return "", fmt.Errorf("%w: there is no route to %s; name another address with -outbound-to, or leave the family out with -families",
				errNotTried, to)
		case err != nil:
			return "", fmt.Errorf("a connection to %s did not come to port %d: %w", to, v.outbound, err)
		case at != deskOutbound:
			return "", fmt.Errorf("a connection to %s came to the %s port, and not to port %d", to, at, v.outbound)
		}
		return fmt.Sprintf("a connection to %s came to port %d", to, v.outbound), nil
	})
}

// routed reports whether the pod itself has a route. Without a redirecting rule, a router's ICMP
// answer causes the same error as a missing route.
func routed(ctx context.Context, to netip.AddrPort) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", to.String()) // sends nothing
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was written
	return true
}

// call connects to the pod's own address until the connection ends at the inbound port.
func (v *validation) call(ctx context.Context, f family) (string, error) {
	i := slices.IndexFunc(v.addresses, func(a netip.Addr) bool { return familyOf(a) == f })
	if i < 0 {
		return "", fmt.Errorf("%w: the pod has no address of the family; leave it out with -families", errNotTried)
	}
	to := netip.AddrPortFrom(v.addresses[i], v.decoy[f])
	return v.until(ctx, func(ctx context.Context) (string, error) {
		at, err := v.send(ctx, to)
		switch {
		case err != nil && v.tproxy && !v.transparent:
			return v.compareDropped(ctx, to, err)
		case err != nil:
			return "", fmt.Errorf("a connection to %s did not come to port %d: %w", to, v.inbound, err)
		case at != deskInbound:
			return "", fmt.Errorf("a connection to %s came there, and not to port %d", to, v.inbound)
		}
		return fmt.Sprintf("a connection to %s came to port %d", to, v.inbound), nil
	})
}

// compareDropped is for TPROXY in a process that may not have a transparent socket. What the rule
// sends to such a socket is dropped, and what goes to the tunnel port is not. Only a rule that
// distinguishes the two has this effect.
func (v *validation) compareDropped(ctx context.Context, to netip.AddrPort, err error) (string, error) {
	if timeout, is := errors.AsType[net.Error](err); !is || !timeout.Timeout() {
		return "", fmt.Errorf("a connection to %s was not handed over: %w", to, err)
	}
	tunnel := netip.AddrPortFrom(to.Addr(), uint16(v.tunnel))
	if at, err := v.send(ctx, tunnel); err != nil || at != deskOpen {
		return "", fmt.Errorf("neither a connection to %s arrives nor one to the tunnel port: %w", to, err)
	}
	return fmt.Sprintf("a connection to %s was kept for a transparent socket, one to the tunnel port was not", to), nil
}

// awaitProbe waits for a probe from outside that ends at the inbound port. If all is captured, it
// also waits until the kubelet has received the success.
func (v *validation) awaitProbe(ctx context.Context, f family) (string, error) {
	last := fmt.Errorf("no probe came to port %d: does the container have a startup probe with httpGet on port %d?", v.inbound, v.probe)
	others, captured := v.others, ""
	for {
		if others == nil && captured != "" && !v.passed.Load() {
			return captured, nil // another check has failed
		}
		select {
		case p := <-v.probed[f]:
			if captured, last = v.came(p, captured); p.success {
				return captured, nil
			}
		case <-others:
			others = nil
		case <-ctx.Done():
			<-v.others // these checks end now too
			if captured != "" && !v.passed.Load() {
				return captured, nil
			}
			return "", last
		}
	}
}

// came returns where a probe arrived if that proves capture, else the earlier proof, and the error
// to report if no further probe comes.
func (v *validation) came(p probe, before string) (captured string, wrong error) {
	if !p.captured {
		return before, fmt.Errorf("a probe from %s came to port %d itself, and not to port %d", p.from, v.probe, v.inbound)
	}
	captured = fmt.Sprintf("a probe from %s to port %d came to port %d", p.from, v.probe, v.inbound)
	return captured, errors.New(captured + ", and none since the rest was found captured")
}

// until repeats a check until it succeeds, repeating it cannot help, or the time is over.
func (v *validation) until(ctx context.Context, try func(context.Context) (string, error)) (string, error) {
	var last error
	for again := time.Tick(pause); ; {
		detail, err := try(ctx)
		if err == nil || errors.Is(err, errNotTried) {
			return detail, err
		}
		// The previous try's error is more useful than that of an interrupted one.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return "", last
		case <-again:
		}
	}
}

// send sends a nonce to an address, and returns which of this process's sockets answered.
func (v *validation) send(ctx context.Context, to netip.AddrPort) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()            //nolint:errcheck // the answer is already sent
	deadline, _ := ctx.Deadline() // always set above
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	nonce := rand.Text()
	if _, err := io.WriteString(conn, greeting+nonce+"\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("another program took the connection, and did not answer as this process would: %w", err)
	}
	for _, at := range []place{deskOutbound, deskInbound, deskOpen} {
		if v.answer(at, nonce) == answer {
			return at, nil
		}
	}
	return "", errors.New("another program took the connection, and did not answer as this process would")
}
