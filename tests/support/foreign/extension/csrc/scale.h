#pragma once
void launch_scale(const float *x, float *y, float factor, long n);
