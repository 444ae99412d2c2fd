// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugin

import "errors"

func lookForInterfaces(string, []string) error { return errors.ErrUnsupported }
