// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "github.com/meshcni/meshcni/interception"

func tryPrivileges(interception.Mark) error { return interception.ErrUnsupported }
