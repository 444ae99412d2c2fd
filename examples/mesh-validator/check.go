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

// kind is what a check tries.
type kind string

const (
	kindOutbound kind = "outbound"
	kindSelf     kind = "self"
	kindProbe    kind = "probe"
)

// direction is the way that a check is about.
func (k kind) direction() string {
	if k == kindOutbound {
		return "outbound"
	}
	return "inbound"
}

// family is an IP family.
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

// result is what came of a check.
type result struct {
	Direction string `json:"direction"`
	Check     kind   `json:"check"`
	// Family is empty for a probe that may come by either, and didn't.
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

// errNotTried is about what kept a check from being made.
var errNotTried = errors.New("could not be tried")

const (
	// pause is between one try and the next: somebody may repair the pod meanwhile.
	pause = 200 * time.Millisecond
	// patience is how long one try may take.
	patience = time.Second
)

// validation is one run.
type validation struct {
	options
	*desk
	addresses []netip.Addr // the pod's
	decoy     map[family]uint16
	others    chan struct{} // is closed when all checks but probes have ended
}

// all makes all checks at once.
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

// each is the families that a check is made in. A probe comes by the pod's first address, so that any will do unless they are named.
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

// leave connects to nobody's address, until that ends at the outbound port.
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

// routed says whether the pod itself has a route. Without a rule, a router on the way may have answered that it has none (ICMP), which is the
// same error of a connection.
func routed(ctx context.Context, to netip.AddrPort) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", to.String()) // which sends nothing
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was written
	return true
}

// call connects to the pod's own address, until that ends at the inbound port.
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

// compareDropped is for TPROXY and a process that may not have a transparent socket: what would be handed to one is dropped, and what goes to
// the tunnel port isn't. Only a rule that tells them apart does that.
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

// awaitProbe waits for a probe from outside that ends at the inbound port, and for the kubelet to hear that all is captured, if it is.
func (v *validation) awaitProbe(ctx context.Context, f family) (string, error) {
	last := fmt.Errorf("no probe came to port %d: does the container have a startup probe with httpGet on port %d?", v.inbound, v.probe)
	others, captured := v.others, ""
	for {
		if others == nil && captured != "" && !v.passed.Load() {
			return captured, nil // and the rest isn't
		}
		select {
		case p := <-v.probed[f]:
			if captured, last = v.came(p, captured); p.success {
				return captured, nil
			}
		case <-others:
			others = nil
		case <-ctx.Done():
			<-v.others // which end now, too
			if captured != "" && !v.passed.Load() {
				return captured, nil
			}
			return "", last
		}
	}
}

// came says where a probe came, if that is captured, and otherwise what the one before proved; and what is wrong as long as no other comes.
func (v *validation) came(p probe, before string) (captured string, wrong error) {
	if !p.captured {
		return before, fmt.Errorf("a probe from %s came to port %d itself, and not to port %d", p.from, v.probe, v.inbound)
	}
	captured = fmt.Sprintf("a probe from %s to port %d came to port %d", p.from, v.probe, v.inbound)
	return captured, errors.New(captured + ", and none since the rest was found captured")
}

// until tries again until there is a proof, something that no other try would change, or the time is over.
func (v *validation) until(ctx context.Context, try func(context.Context) (string, error)) (string, error) {
	var last error
	for again := time.Tick(pause); ; {
		detail, err := try(ctx)
		if err == nil || errors.Is(err, errNotTried) {
			return detail, err
		}
		if last == nil || ctx.Err() == nil { // a try that was broken off says less than the one before
			last = err
		}
		select {
		case <-ctx.Done():
			return "", last
		case <-again:
		}
	}
}

// send says a nonce to an address, and returns which of our own sockets has answered.
func (v *validation) send(ctx context.Context, to netip.AddrPort) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()            //nolint:errcheck // all has been said
	deadline, _ := ctx.Deadline() // which is set above
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	nonce := rand.Text()
	if _, err := io.WriteString(conn, greeting+nonce+"\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("somebody took the connection, and did not answer as this process would: %w", err)
	}
	for _, at := range []place{deskOutbound, deskInbound, deskOpen} {
		if v.answer(at, nonce) == answer {
			return at, nil
		}
	}
	return "", errors.New("somebody took the connection, and did not answer as this process would")
}
