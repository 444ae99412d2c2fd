// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

func (s *Socket) readSysctl(key string) (int, error) {
	text, err := s.namespace.ReadSysctl(key)
	if err != nil {
		return 0, err
	}
	value, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("sysctl %s is not a number: %w", key, err)
	}
	return value, nil
}

func (s *Socket) writeSysctl(key string, value int) error {
	return s.namespace.WriteSysctl(key, strconv.Itoa(value))
}

// sysctl prepares a sysctl of the plan. A missing sysctl may come and go with a link of the plan.
func (c *Change) sysctl(w interception.Sysctl) error {
	now, err := c.socket.readSysctl(w.Key)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return &interception.ApplyError{At: string(w.ID), Why: w.Why, Err: err}
	}
	record := SysctlRecord{Key: w.Key, Before: now, Value: w.Value, New: missing}
	if i := slices.IndexFunc(c.before.Sysctls, func(r SysctlRecord) bool { return r.Key == w.Key }); i >= 0 {
		record.Before, record.New = c.before.Sysctls[i].Before, c.before.Sysctls[i].New
	}
	c.left.Sysctls = append(c.left.Sysctls, record)
	if !missing && now == w.Value {
		return nil
	}
	c.steps = append(c.steps, step{
		at: w.ID, why: w.Why,
		do: func() error { return c.socket.writeSysctl(w.Key, w.Value) },
		undo: func() error {
			if missing {
				return nil
			}
			return gone(c.socket.writeSysctl(w.Key, now))
		},
	})
	return nil
}

// staleSysctls adds a step for each sysctl that the owner has set and the plan lacks. A value that
// another program has set since stays.
func (c *Change) staleSysctls(p *interception.Plan) {
	sysctls := slices.Collect(interception.ObjectsOf[interception.Sysctl](p))
	for _, r := range c.before.Sysctls {
		if !slices.ContainsFunc(sysctls, func(w interception.Sysctl) bool { return w.Key == r.Key }) {
			c.stale = append(c.stale, step{do: func() error { return c.socket.restoreSysctl(r) }})
		}
	}
}

func (s *Socket) restoreSysctl(r SysctlRecord) error {
	if r.New || r.Before == r.Value {
		return nil
	}
	now, err := s.readSysctl(r.Key)
	if err == nil && now == r.Value {
		err = s.writeSysctl(r.Key, r.Before)
	}
	return gone(err)
}
