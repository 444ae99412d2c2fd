// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ServerURL returns the API server's URL for the values that Kubernetes puts into every pod's
// environment: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, and the protocol, which
// defaults to "https". The host is an IPv4 address, an IPv6 address (with or without brackets; the
// URL has them once) or a DNS name; the port is a number from 1 to 65535. Anything else is an
// [ErrServer] that names the value. This includes IPv4 addresses in brackets, which Go's URL parser
// refuses since 1.25.2.
func ServerURL(protocol, host, port string) (*url.URL, error) {
	switch protocol {
	case "":
		protocol = "https"
	case "https", "http":
	default:
		return nil, fmt.Errorf("%w: the protocol is %q: use https", ErrServer, protocol)
	}
	if host == "" {
		return nil, fmt.Errorf("%w: there is no host: set it, as Kubernetes does with KUBERNETES_SERVICE_HOST", ErrServer)
	}
	bare, err := bareHost(host)
	if err != nil {
		return nil, err
	}
	if port == "" {
		return nil, fmt.Errorf("%w: there is no port: set it, as Kubernetes does with KUBERNETES_SERVICE_PORT", ErrServer)
	}
	if err := checkPort(port); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: protocol, Host: net.JoinHostPort(bare, port)}, nil
}

// bareHost checks a host, and removes the brackets of an IPv6 address.
func bareHost(host string) (string, error) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", fmt.Errorf("%w: the host %q has brackets and no IPv6 address in them: brackets are for IPv6 only", ErrServer, host)
		}
		return inner, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", fmt.Errorf("%w: the host %q has a zone, which means something on one machine only: use an address without", ErrServer, host)
		}
		return host, nil
	}
	if !isDNSName(host) {
		return "", fmt.Errorf("%w: the host %q is neither an IP address nor a DNS name: write it without protocol, port and path", ErrServer, host)
	}
	return host, nil
}

// isDNSName reports whether a host is a name of labels with letters, digits, hyphens and
// underscores (RFC 1123 2.1 and what resolvers accept beyond it). The last label must not be a
// number, so that an incomplete IPv4 address is not a name.
func isDNSName(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	label := regexp.MustCompile(`^\w([\w-]{0,61}\w)?$`)
	if slices.ContainsFunc(labels, func(l string) bool { return !label.MatchString(l) }) {
		return false
	}
	_, err := strconv.ParseUint(labels[len(labels)-1], 0, 64)
	return err != nil && len(host) <= 254
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: the port is %q: use a number from 1 to 65535", ErrServer, port)
	}
	return nil
}

// checkServer refuses invalid URLs of an API server. They may come from any source, and user
// information or a query may be secret, so these are not printed.
func checkServer(u *url.URL) error {
	switch {
	case u == nil:
		return fmt.Errorf("%w: there is none: make it with ServerURL", ErrServer)
	case u.User != nil:
		return fmt.Errorf("%w: the URL has user information: the token is the only credential here", ErrServer)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%w: the URL has the protocol %q: use https", ErrServer, u.Scheme)
	case *u != (url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}):
		return fmt.Errorf("%w: the URL has more than host, port and path: remove the rest", ErrServer)
	}
	if err := checkHostPort(u); err != nil {
		return err
	}
	if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host || again.Path != u.Path {
		return fmt.Errorf("%w: clients would not understand the URL %q: make it with ServerURL", ErrServer, u)
	}
	return nil
}

func checkHostPort(u *url.URL) error {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		host = "[" + host + "]"
	}
	if _, err := bareHost(host); err != nil {
		return err
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		return checkPort(port)
	}
	return nil
}
