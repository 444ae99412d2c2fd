// SPDX-License-Identifier: Apache-2.0

package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Network lists what a namespace has beside the rules of netfilter: policy rules, routes,
// addresses, links, and the settings of its interfaces. What comes and goes by itself, and numbers
// that differ each time, are left out.
func (p *Pod) Network(t testing.TB) string {
	t.Helper()
	var all string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(p.Run(t, "rule\nroute show table all\n", "ip", family, "-batch", "-")) {
			if !strings.Contains(line, " proto kernel ") {
				all += line
			}
		}
	}
	var links []string // sorted, as those that are made again come last
	for line := range strings.Lines(p.Run(t, "", "ip", "-o", "address", "show", "scope", "global")) {
		links = append(links, strings.Join(strings.Fields(line)[1:4], " ")+"\n")
	}
	for line := range strings.Lines(p.Run(t, "", "ip", "-br", "link")) {
		name, _, _ := strings.Cut(line, "@") // and the number of the other end
		name, _, _ = strings.Cut(name, " ")
		links = append(links, "link "+name+"\n")
	}
	slices.Sort(links)
	return all + strings.Join(links, "") + p.settings(t)
}

// settings lists the parameters of all interfaces.
func (p *Pod) settings(t testing.TB) (all string) {
	t.Helper()
	if err := p.Namespace.Do(func() error {
		for _, family := range []string{"ipv4", "ipv6"} {
			keys, err := filepath.Glob("/proc/sys/net/" + family + "/conf/*/*")
			if len(keys) == 0 {
				return errors.Join(err, fs.ErrNotExist)
			}
			for _, key := range keys {
				if filepath.Base(key) == "stable_secret" { // which cannot be read until it is written
					continue
				}
				value, err := os.ReadFile(key)
				if err != nil {
					return err
				}
				all += key + " = " + string(value)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
